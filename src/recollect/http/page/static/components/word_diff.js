/** The difference of two texts, word by word. */

import { html } from "../vendor/preact.js";
import { visible, wordDiff } from "../format.js";

// Below this share of common text the two are shown one after the other: a mix of both could not be read.
const MIN_COMMON = 0.35;

/** @param {{before: string, after: string}} props */
export function WordDiff({ before, after }) {
  const parts = wordDiff(before, after);
  const common = parts.filter((part) => part.kind === "same").reduce((sum, part) => sum + part.text.trim().length, 0);
  if (common < MIN_COMMON * Math.min(before.length, after.length)) {
    return html`<span class="text" dir="auto"><del>${visible(before)}</del> <ins>${visible(after)}</ins></span>`;
  }
  return html`<span class="text" dir="auto">${parts.map((part) => (part.kind === "same" ? part.text : part.kind === "added" ? html`<ins>${part.text}</ins>` : html`<del>${part.text}</del>`))}</span>`;
}
