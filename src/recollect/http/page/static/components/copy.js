/** A text with a button that copies it. */

import { html, useState } from "../vendor/preact.js";

/** @param {{text: string, label: string}} props */
export function CopyBlock({ text, label }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Without https or on an old browser the clipboard is not available: select the text instead.
      getSelection()?.selectAllChildren(/** @type {Node} */ (document.getElementById(`copy ${label}`)));
    }
    setCopied(true);
    setTimeout(() => setCopied(false), 2000);
  };
  return html`<div class="copy"><pre id=${`copy ${label}`} tabindex="0">${text}</pre><button onClick=${copy} aria-label=${`Copy ${label}`}>${copied ? "Copied" : "Copy"}</button></div>`;
}
