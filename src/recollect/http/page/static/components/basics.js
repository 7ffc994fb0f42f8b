/** Small parts that every view uses. */

import { html, useLayoutEffect, useRef } from "../vendor/preact.js";
import { ago, fullTime, percent, visible } from "../format.js";
import { link } from "../session.js";

/** A moment: relative, with the full time as its title. @param {{at: string | null | undefined}} props */
export function Time({ at }) {
  return at ? html`<time datetime=${at} title=${fullTime(at)}>${ago(at)}</time>` : null;
}

/** @param {{text: unknown}} props the text of somebody, never markup */
export function Text({ text }) {
  return html`<span class="text" dir="auto">${visible(text)}</span>`;
}

/** @param {{name: string, kind?: string, title?: string}} props */
export function Badge({ name, kind = "", title }) {
  return html`<span class=${`badge ${kind}`} title=${title}>${visible(name)}</span>`;
}

/** A memory's category and what is special about it. @param {{memory: import("../api.js").Memory}} props */
export function MemoryBadges({ memory }) {
  const ended = memory.valid_to && new Date(memory.valid_to) <= new Date();
  return html`<span class="badges">
    <${Badge} name=${memory.category} kind=${`category-${memory.category}`} />
    ${memory.status !== "active" && html`<${Badge} name=${memory.status} kind="status" />`}
    ${memory.status === "active" && ended && html`<${Badge} name="past" kind="status" />`}
    ${memory.trust === "low" && html`<${Badge} name="low trust" kind="warn" title="Not the user's own words" />`}
    ${memory.key && html`<${Badge} name=${memory.value ? `${memory.key}: ${memory.value}` : memory.key} kind="key" />`}
    ${memory.confidence < 0.6 && html`<${Badge} name=${`${percent(memory.confidence)} sure`} kind="warn" />`}
  </span>`;
}

/** @param {{memory: import("../api.js").Memory, children?: unknown}} props one line of a list, a link to the memory */
export function MemoryLine({ memory, children }) {
  return html`<article class="memory-line">
    <a class="memory-text" href=${link("memory", memory.id)}><${Text} text=${memory.memory} /></a>
    <div class="meta"><${MemoryBadges} memory=${memory} /><${Time} at=${memory.created_at} />${children}</div>
  </article>`;
}

/** @param {{error: string, retry?: () => void}} props */
export function Failure({ error, retry }) {
  return error ? html`<div class="failure" role="alert"><p>${error}</p>${retry && html`<button onClick=${retry}>Try again</button>`}</div>` : null;
}

/** @param {{title: string, children?: unknown}} props */
export function Empty({ title, children }) {
  return html`<div class="empty"><h2>${title}</h2>${children}</div>`;
}

/** @param {{title: string, intro?: string, actions?: unknown}} props */
export function Heading({ title, intro, actions }) {
  return html`<header class="heading"><div><h1 tabindex="-1">${title}</h1>${intro && html`<p>${intro}</p>`}</div><div class="actions">${actions}</div></header>`;
}

/** A horizontal bar from 0 to 1, or from -1 to 1 if signed. @param {{value: number, label: string, signed?: boolean}} props */
export function Bar({ value, label, signed = false }) {
  const width = Math.min(Math.abs(value), 1) * (signed ? 50 : 100);
  const x = signed ? (value < 0 ? 50 - width : 50) : 0;
  return html`<svg class=${`bar ${value < 0 ? "negative" : ""}`} viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label=${label}>
    <rect class="track" width="100" height="8" rx="2" /><rect class="fill" x=${x} width=${width} height="8" rx="2" />
  </svg>`;
}

/**
 * A dialog that the browser keeps the focus in; Escape closes it.
 * @param {{title: string, onClose: () => void, children?: unknown}} props
 */
export function Dialog({ title, onClose, children }) {
  const element = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useLayoutEffect(() => {
    element.current?.showModal();
  }, []);
  return html`<dialog ref=${element} aria-label=${title} onClose=${onClose} onClick=${(/** @type {MouseEvent} */ event) => event.target === element.current && onClose()}>
    <form method="dialog" class="dialog-head"><h2>${title}</h2><button aria-label="Close" class="quiet">✕</button></form>
    ${children}
  </dialog>`;
}
