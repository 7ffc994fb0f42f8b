/** Dialogs that change one memory: edit, forget, erase for good. */

import { html, useState } from "../vendor/preact.js";
import { ApiError, del, patch, post } from "../api.js";
import { plural } from "../format.js";
import { undoOfNewest } from "../memories.js";
import { attempt, messageOf, notify } from "../session.js";
import { Dialog, Failure, Text } from "./basics.js";

/** @typedef {import("../api.js").Memory} Memory */
/** @typedef {{store: string, counts: Record<string, number>, reached: boolean, note: string}} StoreErasure */
/** @typedef {{id: string, at: string, reached: boolean, stores: StoreErasure[], stays: unknown[], out_of_reach: {store: string, note: string}[]}} Receipt */

export const CATEGORIES = ["fact", "preference", "insight", "identity", "constraint", "instruction", "event", "summary", "episode", "lesson"];
/** @param {Event} event @returns {string} */
const valueOf = (event) => /** @type {HTMLInputElement} */ (event.target).value;

/** @param {Memory} memory */
const editableOf = (memory) => ({ content: memory.memory, key: memory.key ?? "", value: memory.value ?? "", category: memory.category, importance: memory.importance, confidence: memory.confidence });

/**
 * @param {{memory: Memory, path: string, onClose: () => void, onSaved: () => void}} props
 * `path` is memories/ID, or reviews/ID for one that waits for review
 */
export function EditDialog({ memory, path, onClose, onSaved }) {
  // The version that is edited, although a newer one may arrive meanwhile.
  const [base] = useState(memory);
  const [draft, setDraft] = useState(() => editableOf(memory));
  const [error, setError] = useState("");
  const change = (/** @type {Partial<typeof draft>} */ parts) => setDraft({ ...draft, ...parts });
  const save = async () => {
    /** @type {Record<string, unknown>} */
    const before = editableOf(base);
    const changed = Object.fromEntries(Object.entries(draft).filter(([name, value]) => value !== before[name]).map(([name, value]) => [name, value === "" ? null : value]));
    if (!Object.keys(changed).length) return onClose();
    try {
      await patch(path, changed, { "If-Match": `"${base.version}"` });
      onSaved();
      onClose();
      notify("Saved.", { undo: await undoOfNewest(memory.id) });
    } catch (problem) {
      const isStale = problem instanceof ApiError && problem.status === 412;
      setError(isStale ? "Somebody else changed this memory while you were editing, so nothing was saved. Copy your text, close this, and edit the newest version." : messageOf(problem));
    }
  };
  /** @param {KeyboardEvent} event */
  const onKeyDown = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save();
  };
  return html`<${Dialog} title="Edit" onClose=${onClose}><form class="stack" onKeyDown=${onKeyDown} onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); save(); }}>
    <label>Text<textarea rows="4" required autofocus dir="auto" value=${draft.content} onInput=${(/** @type {Event} */ event) => change({ content: valueOf(event) })}></textarea></label>
    <div class="fields"><label>Key<input value=${draft.key} onInput=${(/** @type {Event} */ event) => change({ key: valueOf(event) })} placeholder="such as city" /></label>
      <label>Value<input value=${draft.value} onInput=${(/** @type {Event} */ event) => change({ value: valueOf(event) })} placeholder="such as Lisbon" /></label>
      <label>Category<select value=${draft.category} onChange=${(/** @type {Event} */ event) => change({ category: valueOf(event) })}>${[...new Set([...CATEGORIES, memory.category])].map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select></label>
      <label>Importance<input type="number" min="0" max="1" step="0.05" value=${draft.importance} onInput=${(/** @type {Event} */ event) => change({ importance: Number(valueOf(event)) })} /></label>
      <label>Confidence<input type="number" min="0" max="1" step="0.01" value=${draft.confidence} onInput=${(/** @type {Event} */ event) => change({ confidence: Number(valueOf(event)) })} /></label></div>
    <${Failure} error=${error || (memory.version !== base.version ? "Somebody else has changed this memory since you opened it. Close this and edit the newest version." : "")} />
    <div class="row"><button class="primary">Save</button><button type="button" class="quiet" onClick=${onClose}>Cancel</button><span class="soft small">Ctrl+Enter saves</span></div>
  </form></${Dialog}>`;
}

/** @param {{memory: Memory, onClose: () => void, onDone: () => void}} props */
export function ForgetDialog({ memory, onClose, onDone }) {
  const [why, setWhy] = useState("");
  const [sources, setSources] = useState(true);
  const forget = (/** @type {Event} */ event) => {
    event.preventDefault();
    onClose();
    attempt(async () => {
      await del(`memories/${memory.id}`, { why, sources });
      onDone();
      notify("Forgotten: it is not recalled any more.", { undo: async () => { await post(`memories/${memory.id}/restore`); onDone(); } });
    });
  };
  return html`<${Dialog} title="Forget this memory?" onClose=${onClose}><form class="stack" onSubmit=${forget}>
    <blockquote><${Text} text=${memory.memory} /></blockquote>
    <p class="soft">It will not be recalled any more. It stays in the history and can be restored at any time.</p>
    <label>Reason, for the history<input value=${why} maxlength="500" autofocus placeholder="optional" onInput=${(/** @type {Event} */ event) => setWhy(valueOf(event))} /></label>
    ${memory.evidence.length > 0 && html`<label class="check"><input type="checkbox" checked=${sources} onChange=${() => setSources(!sources)} /> Also forget the ${plural(memory.evidence.length, "message")} it was learned from</label>`}
    <div class="row"><button class="danger">Forget</button><button type="button" class="quiet" onClick=${onClose}>Cancel</button></div>
  </form></${Dialog}>`;
}

/** @param {{memory: Memory, changes: number, onClose: () => void, onErased: (receipt: Receipt) => void}} props */
export function EraseDialog({ memory, changes, onClose, onErased }) {
  const [isSure, setSure] = useState(false);
  const [error, setError] = useState("");
  const [isBusy, setBusy] = useState(false);
  const erase = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setBusy(true);
    try {
      const receipt = await post("erase", { target: memory.category === "turn" ? "turn" : "memory", id: memory.id });
      onClose();
      onErased(receipt);
    } catch (problem) {
      setError(messageOf(problem));
      setBusy(false);
    }
  };
  return html`<${Dialog} title="Erase for good?" onClose=${onClose}><form class="stack" onSubmit=${erase}>
    <blockquote><${Text} text=${memory.memory} /></blockquote>
    <div><p>This removes, and nothing brings it back:</p><ul>
      <li>this memory, its search index and its vector</li><li>its history: ${plural(changes, "change")} with the old texts</li><li>cached copies of it on this server</li></ul>
      ${memory.evidence.length > 0 && html`<p>The ${plural(memory.evidence.length, "message")} it was learned from will be forgotten, but not erased; open them to erase them too.</p>`}
      <p class="soft">To only stop using it, <em>forget</em> it instead: that can be undone.</p></div>
    <label class="check"><input type="checkbox" checked=${isSure} onChange=${() => setSure(!isSure)} /> I understand that this cannot be undone</label>
    <${Failure} error=${error} />
    <div class="row"><button class="danger" disabled=${!isSure || isBusy}>${isBusy ? "Erasing…" : "Erase for good"}</button><button type="button" class="quiet" onClick=${onClose}>Cancel</button></div>
  </form></${Dialog}>`;
}

/** @param {{receipt: Receipt}} props */
export function ErasureReceipt({ receipt }) {
  return html`<section class="card stack" aria-label="Receipt"><h2>Receipt</h2>
    <p class="soft small">Number <code>${receipt.id}</code>. ${receipt.reached ? "Every store of this server was reached." : "Not every store was reached; the erasure is repeated until it is."}</p>
    <table><thead><tr><th>Store</th><th>Removed</th><th>State</th></tr></thead><tbody>${receipt.stores.map(
      (each) => html`<tr key=${each.store}><td>${each.store}</td><td>${describeCounts(each.counts)}</td><td>${each.reached ? "done" : `not reached ${each.note}`}</td></tr>`,
    )}</tbody></table>
    ${receipt.out_of_reach.length > 0 && html`<div><h3>Out of this server's reach</h3><ul>${receipt.out_of_reach.map((each) => html`<li key=${each.store}><strong>${each.store}</strong>: ${each.note}</li>`)}</ul></div>`}
  </section>`;
}

/** @param {Record<string, number>} counts */
function describeCounts(counts) {
  const nameOf = (/** @type {string} */ name, /** @type {number} */ count) => {
    const many = name === "history" ? "history entries" : name;
    return count === 1 ? many.replace(/ies$/, "y").replace(/s$/, "") : many;
  };
  const parts = Object.entries(counts).filter(([, count]) => count > 0).map(([name, count]) => `${count.toLocaleString()} ${nameOf(name, count)}`);
  return parts.join(", ") || "nothing of it was there";
}
