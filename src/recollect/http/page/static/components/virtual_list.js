/** A list of any length that only renders what is seen. */

import { html, useEffect, useLayoutEffect, useRef, useState } from "../vendor/preact.js";

const OVERSCAN = 6;

/**
 * Rows have one estimated height; what is rendered is measured, so that rows of any height fit.
 * @template T
 * @param {{items: T[], render: (item: T, index: number) => unknown, keyOf: (item: T) => string, estimate?: number, onEnd?: () => void, label: string}} props
 */
export function VirtualList({ items, render, keyOf, estimate = 84, onEnd, label }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const heights = useRef(/** @type {Map<string, number>} */ (new Map()));
  const [view, setView] = useState({ top: 0, height: 800 });
  const [, remeasure] = useState(0);

  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    let frame = 0;
    const update = () => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(() => setView({ top: element.scrollTop, height: element.clientHeight }));
    };
    update();
    element.addEventListener("scroll", update, { passive: true });
    const observer = new ResizeObserver(update);
    observer.observe(element);
    return () => {
      element.removeEventListener("scroll", update);
      observer.disconnect();
      cancelAnimationFrame(frame);
    };
  }, []);

  const offsets = [0];
  for (const item of items) offsets.push(offsets[offsets.length - 1] + (heights.current.get(keyOf(item)) ?? estimate));
  const total = offsets[items.length];
  let first = lowerBound(offsets, view.top) - OVERSCAN;
  let last = lowerBound(offsets, view.top + view.height) + OVERSCAN;
  first = Math.max(0, first);
  last = Math.min(items.length, last);

  useLayoutEffect(() => {
    let changed = false;
    for (const row of box.current?.querySelectorAll("[data-key]") ?? []) {
      const key = row.getAttribute("data-key") ?? "";
      const height = row.getBoundingClientRect().height;
      if (height && Math.abs((heights.current.get(key) ?? estimate) - height) > 1) {
        heights.current.set(key, height);
        changed = true;
      }
    }
    if (changed) remeasure((count) => count + 1);
  });
  useEffect(() => {
    if (onEnd && last >= items.length - 2) onEnd();
  }, [last, items.length]);

  return html`<div class="virtual" ref=${box} role="feed" aria-label=${label} tabindex="0">
    <div class="virtual-space" ref=${(/** @type {HTMLElement | null} */ element) => element && (element.style.height = `${total}px`)}>
      ${items.slice(first, last).map(
        (item, index) => html`<div class="virtual-row" key=${keyOf(item)} data-key=${keyOf(item)} aria-posinset=${first + index + 1} aria-setsize=${items.length}
          ref=${(/** @type {HTMLElement | null} */ element) => element && (element.style.transform = `translateY(${offsets[first + index]}px)`)}>${render(item, first + index)}</div>`,
      )}
    </div>
  </div>`;
}

/** @param {number[]} sorted @param {number} value @returns {number} the index of the last entry that is not above the value */
function lowerBound(sorted, value) {
  let [low, high] = [0, sorted.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (sorted[middle] <= value) low = middle;
    else high = middle - 1;
  }
  return low;
}
