// Types of the parts of preact and htm that the page uses.
export type Child = VNode | string | number | boolean | null | undefined | Child[];
export interface VNode { type: unknown; props: Record<string, unknown>; }
export function h(type: unknown, props: Record<string, unknown> | null, ...children: Child[]): VNode;
export function html(strings: TemplateStringsArray, ...values: unknown[]): any;
export function render(child: Child, parent: Element): void;
export function useState<T>(initial: T | (() => T)): [T, (next: T | ((before: T) => T)) => void];
export function useEffect(effect: () => void | (() => void), inputs?: unknown[]): void;
export function useLayoutEffect(effect: () => void | (() => void), inputs?: unknown[]): void;
export function useRef<T>(initial: T): { current: T };
export function useMemo<T>(make: () => T, inputs: unknown[]): T;
export function useCallback<T>(callback: T, inputs: unknown[]): T;
export function useReducer<S, A>(reducer: (state: S, action: A) => S, initial: S): [S, (action: A) => void];
export function useErrorBoundary(callback?: (error: Error) => void): [Error | undefined, () => void];
