/** A selection of memories in a list: rows, ranges, or everything that the filter selects; and what to do with it. */

import { html, useState } from "../vendor/preact.js";
import { plural } from "../format.js";
import { download, fetchAll, forgetByFilter, forgetMemories, restoreMemories, tagMemories } from "../bulk.js";
import { attempt, state } from "../session.js";
import { Dialog } from "./basics.js";

/** @typedef {import("../api.js").Memory} Memory */

// More than this are only forgotten after a question.
const MAX_UNASKED = 100;

/**
 * @param {Memory[]} items
 * @param {string} resetBy the selection is emptied when this changes
 */
export function useSelection(items, resetBy) {
  const [chosen, setChosen] = useState({ ids: /** @type {Set<string>} */ (new Set()), all: false, last: -1, resetBy });
  const current = chosen.resetBy === resetBy ? chosen : { ids: /** @type {Set<string>} */ (new Set()), all: false, last: -1, resetBy };
  /** @param {number} index @param {boolean} isRange */
  const toggle = (index, isRange) => {
    const ids = new Set(current.all ? items.map((item) => item.id) : current.ids);
    const [from, to] = isRange && current.last >= 0 ? [Math.min(current.last, index), Math.max(current.last, index)] : [index, index];
    const mustAdd = isRange ? true : !ids.has(items[index].id);
    for (const item of items.slice(from, to + 1)) mustAdd ? ids.add(item.id) : ids.delete(item.id);
    setChosen({ ids, all: false, last: index, resetBy });
  };
  return {
    isAll: current.all,
    ids: current.ids,
    has: (/** @type {string} */ id) => current.all || current.ids.has(id),
    isEmpty: !current.all && !current.ids.size,
    toggle,
    clear: () => setChosen({ ids: new Set(), all: false, last: -1, resetBy }),
    selectLoaded: () => setChosen({ ids: new Set(items.map((item) => item.id)), all: false, last: -1, resetBy }),
    selectAll: () => setChosen({ ids: new Set(), all: true, last: -1, resetBy }),
  };
}

/**
 * @param {{selection: ReturnType<typeof useSelection>, items: Memory[], total: number, listing: Record<string, unknown>, isSearch: boolean}} props
 * `listing` is the body of /list that gives everything of the filter
 */
export function SelectionBar({ selection, items, total, listing, isSearch }) {
  const [busy, setBusy] = useState("");
  const [isTagging, setTagging] = useState(false);
  const [isAsking, setAsking] = useState(false);
  const count = selection.isAll ? total : selection.ids.size;
  const writes = state.me?.write !== false;
  /** @param {string} name @param {(memories: Memory[], onProgress: import("../bulk.js").Progress) => unknown} action */
  const run = (name, action) =>
    attempt(async () => {
      setBusy(`${name}…`);
      const onProgress = (/** @type {number} */ done, /** @type {number} */ of) => setBusy(`${name} ${done.toLocaleString()}${of ? ` of ${of.toLocaleString()}` : ""}`);
      const memories = selection.isAll ? await fetchAll(listing, onProgress, total) : items.filter((item) => selection.ids.has(item.id));
      await action(memories, onProgress);
      selection.clear();
    }).finally(() => setBusy(""));
  const isActiveOnly = /** @type {string[]} */ (listing.statuses).join() === "active";
  const forgetNow = () =>
    selection.isAll && isActiveOnly ? attempt(() => forgetByFilter(/** @type {Record<string, unknown>} */ (listing.filters))).then(selection.clear) : run("Forgetting", forgetMemories);
  const forget = () => (count > MAX_UNASKED ? setAsking(true) : forgetNow());
  return html`<div class="selection-bar" role="toolbar" aria-label="Selected memories">
    <span role="status">${busy || `${count.toLocaleString()} selected`}</span>
    ${!busy && html`
      ${!selection.isAll && !isSearch && total > count && html`<button class="quiet small" onClick=${selection.selectAll}>Select all ${total.toLocaleString()}</button>`}
      <span class="actions">
        ${writes && html`<button onClick=${forget}>Forget</button><button onClick=${() => run("Restoring", restoreMemories)}>Restore</button><button onClick=${() => setTagging(true)}>Tag…</button>`}
        <button onClick=${() => run("Reading", (memories) => download(memories, "memories.jsonl"))}>Export</button>
        <button class="quiet" onClick=${selection.clear}>Clear</button></span>`}
    ${isAsking && html`<${Dialog} title=${`Forget ${plural(count, "memory", "memories")}?`} onClose=${() => setAsking(false)}>
      <p>None of them will be recalled any more. They stay in the history and can be restored.</p>
      <div class="row"><button class="danger" onClick=${() => { setAsking(false); forgetNow(); }}>Forget ${count.toLocaleString()}</button><button class="quiet" onClick=${() => setAsking(false)}>Cancel</button></div></${Dialog}>`}
    ${isTagging && html`<${TagDialog} count=${count} onClose=${() => setTagging(false)} onTag=${(/** @type {string} */ tag) => run("Tagging", (memories, onProgress) => tagMemories(memories, tag, onProgress))} />`}
  </div>`;
}

/** @param {{count: number, onClose: () => void, onTag: (tag: string) => void}} props */
function TagDialog({ count, onClose, onTag }) {
  const [tag, setTag] = useState("");
  /** @param {Event} event */
  const submit = (event) => {
    event.preventDefault();
    if (!tag.trim()) return;
    onClose();
    onTag(tag.trim());
  };
  return html`<${Dialog} title=${`Tag ${plural(count, "memory", "memories")}`} onClose=${onClose}>
    <form class="stack" onSubmit=${submit}><label>Tag <input value=${tag} maxlength="200" autofocus onInput=${(/** @type {Event} */ event) => setTag(/** @type {HTMLInputElement} */ (event.target).value)} /></label>
      <p class="soft small">If all of them have the tag already, it is removed.</p>
      <div class="row"><button class="primary" disabled=${!tag.trim()}>Tag</button></div></form>
  </${Dialog}>`;
}
