/** A list of any length that only renders what is seen. */

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/preact.js";

const OVERSCAN = 6;
const NEAR_END = 20;

/**
 * Rows have one estimated height; what is rendered is measured, so that rows of any height fit. The row at the top
 * stays where it is while rows above it are measured. Arrows, Home, End and the page keys move the focus from row to
 * row; the focused row stays in the document while it is out of sight.
 * @template T
 * @param {{items: T[], render: (item: T, index: number) => unknown, keyOf: (item: T) => string, estimate?: number, onEnd?: () => void, onRowKey?: (event: KeyboardEvent, index: number) => void, label: string}} props
 */
export function VirtualList({ items, render, keyOf, estimate = 84, onEnd, onRowKey, label }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const heights = useRef(/** @type {Map<string, {height: number, width: number, item: unknown}>} */ (new Map()));
  const anchor = useRef({ key: "", distance: 0 });
  const [measured, remeasure] = useState(0);
  const [focused, setFocused] = useState("");
  const mustFocus = useRef(false);
  const view = useViewport(box);

  const { keys, indexes, sizes } = useMemo(() => {
    const names = items.map(keyOf);
    const known = Float64Array.from(names, (key) => heights.current.get(key)?.height ?? estimate);
    return { keys: names, indexes: new Map(names.map((key, index) => [key, index])), sizes: known };
  }, [items]);
  const offsets = useMemo(() => {
    const sums = new Float64Array(sizes.length + 1);
    for (let index = 0; index < sizes.length; index++) sums[index + 1] = sums[index] + sizes[index];
    return sums;
  }, [sizes, measured]);
  const first = Math.max(0, findRow(offsets, view.top) - OVERSCAN);
  const last = Math.min(items.length, findRow(offsets, view.top + view.height) + 1 + OVERSCAN);
  const active = indexes.get(focused) ?? -1;
  const shown = rangeWith(first, last, active);

  // Measuring costs a layout, so a row is measured once for each width and content.
  useLayoutEffect(() => {
    const width = box.current?.clientWidth ?? 0;
    let changed = false;
    for (const row of box.current?.querySelectorAll("[data-key]") ?? []) {
      const key = row.getAttribute("data-key") ?? "";
      const index = indexes.get(key) ?? -1;
      const known = heights.current.get(key);
      if (known?.item === items[index] && known?.width === width) continue;
      const { height } = row.getBoundingClientRect();
      if (!height || index < 0) continue;
      heights.current.set(key, { height, width, item: items[index] });
      changed ||= Math.abs(sizes[index] - height) > 0.5;
      sizes[index] = height;
    }
    if (changed) remeasure((count) => count + 1);
  });
  // Keep the row at the top in place when the heights above it turn out different or rows come before it.
  useLayoutEffect(() => {
    const place = indexes.get(anchor.current.key);
    const element = box.current;
    if (!element || place === undefined || element.scrollTop === 0) return;
    const top = offsets[place] + anchor.current.distance;
    if (Math.abs(element.scrollTop - top) > 0.5) element.scrollTop = top;
  }, [offsets]);
  useLayoutEffect(() => {
    const top = findRow(offsets, view.top);
    if (items[top]) anchor.current = { key: keys[top], distance: view.top - offsets[top] };
  }, [view.top, items]);
  useLayoutEffect(() => {
    if (!mustFocus.current || active < 0) return;
    mustFocus.current = false;
    const row = [...(box.current?.querySelectorAll("[data-key]") ?? [])].find((each) => each.getAttribute("data-key") === focused);
    /** @type {HTMLElement | undefined} */ (row)?.focus({ preventScroll: true });
  });
  useEffect(() => {
    if (onEnd && last >= items.length - NEAR_END) onEnd();
  }, [last, items.length]);

  /** @param {number} index */
  const moveTo = (index) => {
    const place = Math.max(0, Math.min(items.length - 1, index));
    const element = box.current;
    if (!element || !items[place]) return;
    mustFocus.current = true;
    setFocused(keys[place]);
    const [top, bottom] = [offsets[place], offsets[place + 1]];
    if (top < element.scrollTop) element.scrollTop = top;
    else if (bottom > element.scrollTop + element.clientHeight) element.scrollTop = bottom - element.clientHeight;
    view.update();
  };
  /** @param {KeyboardEvent} event */
  const onKeyDown = (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) && /** @type {HTMLInputElement} */ (target).type !== "checkbox") return;
    const page = Math.max(1, Math.floor(view.height / estimate) - 1);
    /** @type {Record<string, number>} */
    const moves = { ArrowDown: active + 1, ArrowUp: active - 1, PageDown: active + page, PageUp: active - page, Home: 0, End: items.length - 1 };
    if (event.key in moves && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      moveTo(moves[event.key]);
      if (event.shiftKey) onRowKey?.(event, Math.max(0, Math.min(items.length - 1, moves[event.key])));
    } else if (active >= 0) onRowKey?.(event, active);
  };
  const focusable = shown.includes(active) ? active : findRow(offsets, view.top);
  return html`<div class="virtual" ref=${box} role="feed" aria-label=${label} onKeyDown=${onKeyDown}
    onfocusin=${(/** @type {FocusEvent} */ event) => setFocused(/** @type {HTMLElement} */ (event.target).closest("[data-key]")?.getAttribute("data-key") ?? "")}>
    <div class="virtual-space" ref=${(/** @type {HTMLElement | null} */ element) => element && (element.style.height = `${offsets[items.length]}px`)}>
      ${shown.map(
        (index) => html`<div class="virtual-row" key=${keys[index]} data-key=${keys[index]} role="article" tabindex=${index === focusable ? 0 : -1} aria-posinset=${index + 1} aria-setsize=${items.length}
          ref=${(/** @type {HTMLElement | null} */ element) => element && (element.style.transform = `translateY(${offsets[index]}px)`)}>${render(items[index], index)}</div>`,
      )}
    </div>
  </div>`;
}

/** The part of a box that is seen. @param {{current: HTMLElement | null}} box */
function useViewport(box) {
  const [view, setView] = useState({ top: 0, height: 800 });
  const read = () => {
    const element = box.current;
    if (element) setView((before) => (before.top === element.scrollTop && before.height === element.clientHeight ? before : { top: element.scrollTop, height: element.clientHeight }));
  };
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    read();
    element.addEventListener("scroll", read, { passive: true });
    const observer = new ResizeObserver(read);
    observer.observe(element);
    return () => {
      element.removeEventListener("scroll", read);
      observer.disconnect();
    };
  }, []);
  return { ...view, update: read };
}

/** @param {number} first @param {number} last @param {number} extra @returns {number[]} the indexes from first to before last, and one more */
function rangeWith(first, last, extra) {
  const range = Array.from({ length: Math.max(0, last - first) }, (_, index) => first + index);
  if (extra >= 0 && extra < first) range.unshift(extra);
  else if (extra >= last) range.push(extra);
  return range;
}

/** @param {Float64Array} offsets sorted @param {number} value @returns {number} the row at this height */
function findRow(offsets, value) {
  let [low, high] = [0, Math.max(0, offsets.length - 2)];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (offsets[middle] <= value) low = middle;
    else high = middle - 1;
  }
  return low;
}
