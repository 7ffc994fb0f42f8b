/** Changes of the history as a person reads them: a batch, and each change beside the words it came from. */

import { html, useState } from "../vendor/preact.js";
import { clock, day, fullTime, plural, shorten, visible } from "../format.js";
import { describeAuthor, describeOrigin, isRequested, undoOfNewest, undoTogether } from "../memories.js";
import { attempt, link, notify, state } from "../session.js";
import { MemoryBadges, Text } from "./basics.js";
import { Quote } from "./quote.js";
import { WordDiff } from "./word_diff.js";

/** @typedef {import("../api.js").HistoryEntry} HistoryEntry */
/** @typedef {import("../api.js").Memory} Memory */
/** @typedef {(id: string | null | undefined) => Memory | null | undefined} MemoryOf */
/** @typedef {"learned" | "changed" | "forgotten" | "message"} Kind */
/** @typedef {{entry: HistoryEntry, kind: Kind, replaced: HistoryEntry[]}} Change */
/** @typedef {{id: string, at: string, who: string, why: string, changes: Change[]}} Batch */

const MAX_SHOWN = 8;
const MAX_UNDO = 50;
const SAME_GO_MS = 120_000;

/** @param {HistoryEntry} entry @param {MemoryOf} memoryOf @returns {Kind} */
export function kindOf(entry, memoryOf) {
  if (memoryOf(entry.memory_id)?.category === "turn") return "message";
  if (entry.verb === "add") return "learned";
  const status = /** @type {{status?: string}} */ (entry.after).status;
  return entry.verb === "forget" || status === "forgotten" ? "forgotten" : "changed";
}

/**
 * Group entries, newest first, by batch; what a memory of the batch replaced stands with it.
 * @param {HistoryEntry[]} entries @param {MemoryOf} memoryOf @returns {Batch[]}
 */
export function groupByBatch(entries, memoryOf) {
  /** @type {Batch[]} */
  const batches = [];
  /** @type {Map<string, Change>} */
  let changed = new Map();
  /** @type {HistoryEntry[]} */
  let replaced = [];
  const finish = () => {
    for (const entry of replaced) {
      const by = changed.get(String(entry.after.superseded_by));
      if (by) by.replaced.push(entry);
      else batches.at(-1)?.changes.push({ entry, kind: "changed", replaced: [] });
    }
    [changed, replaced] = [new Map(), []];
  };
  for (const entry of entries) {
    if (batches.at(-1)?.id !== entry.batch) {
      finish();
      batches.push({ id: entry.batch, at: entry.at, who: entry.who, why: entry.why, changes: [] });
    }
    if (entry.verb === "supersede") {
      replaced.push(entry);
      continue;
    }
    const change = { entry, kind: kindOf(entry, memoryOf), replaced: [] };
    changed.set(entry.memory_id, change);
    /** @type {Batch} */ (batches.at(-1)).changes.push(change);
  }
  finish();
  return batches;
}

/**
 * What a person or a program did in one go is shown as one batch; messages that something shown was learned from are
 * left out, since they are quoted there.
 * @param {Batch[]} batches newest first @param {Set<string>} quoted @returns {Batch[]}
 */
export function condense(batches, quoted) {
  /** @type {Batch[]} */
  const shown = [];
  for (const batch of batches) {
    const isMessages = batch.changes.every((change) => change.kind === "message");
    if (isMessages && batch.changes.some((change) => change.entry.verb === "add" && quoted.has(change.entry.memory_id))) continue;
    const last = shown.at(-1);
    const isSameGo = last && !isMessages && isRequested(batch) && last.who === batch.who && last.why === batch.why && last.changes[0].kind !== "message";
    if (isSameGo && Date.parse(last.changes[last.changes.length - 1].entry.at) - Date.parse(batch.at) < SAME_GO_MS) last.changes.push(...batch.changes);
    else shown.push({ ...batch, changes: [...batch.changes] });
  }
  return shown;
}

/** @param {{batch: Batch, memoryOf: MemoryOf, undone: Set<number>, isFresh: boolean}} props */
export function ChangeBatch({ batch, memoryOf, undone, isFresh }) {
  const [isOpen, setOpen] = useState(false);
  const messages = batch.changes.filter((change) => change.kind === "message");
  const others = batch.changes.filter((change) => change.kind !== "message");
  if (!others.length) return html`<${Messages} changes=${messages} memoryOf=${memoryOf} at=${batch.at} who=${batch.who} />`;
  const shown = isOpen ? others : others.slice(0, MAX_SHOWN);
  const mayUndoAll = others.length > 1 && others.length <= MAX_UNDO && state.me?.write !== false && others.every(({ entry }) => entry.verb !== "undo" && !undone.has(entry.id));
  return html`<div class=${`batch card ${isFresh ? "fresh" : ""}`}>
    <header class="batch-head meta">
      <time datetime=${batch.at} title=${fullTime(batch.at)}>${clock(batch.at)}</time>
      <span>${headline(batch, others, memoryOf)}</span>
      ${mayUndoAll && html`<button class="quiet small" onClick=${() => undoAll(others)}>Undo all ${others.length}</button>`}
    </header>
    <ol class="changes">${shown.map((change) => html`<${ChangeRow} key=${change.entry.id} change=${change} memoryOf=${memoryOf} isUndone=${undone.has(change.entry.id)} />`)}</ol>
    ${others.length > shown.length && html`<button class="quiet" onClick=${() => setOpen(true)}>Show ${others.length - shown.length} more of this batch</button>`}
    ${messages.length > 0 && html`<p class="meta">and ${plural(messages.length, "message")} kept word for word</p>`}
  </div>`;
}

/** @param {Batch} batch @param {Change[]} changes @param {MemoryOf} memoryOf */
function headline(batch, changes, memoryOf) {
  const first = memoryOf(changes[0].entry.memory_id);
  const session = !isRequested(batch) && first?.session_id;
  if (session) {
    return html`from session <a href=${link("sessions", session, { project: first.project_id })}>${visible(session)}</a> · ${visible(learnersOf(batch, changes, memoryOf))}`;
  }
  const why = batch.why ? ` · “${shorten(batch.why, 120)}”` : "";
  return html`by ${visible(describeAuthor(batch.who))}${why}`;
}

/** The models that learned what is new in a batch; else the step that made the change. @param {Batch} batch @param {Change[]} changes @param {MemoryOf} memoryOf */
function learnersOf(batch, changes, memoryOf) {
  const learned = changes.filter(({ entry }) => entry.verb === "add").map(({ entry }) => memoryOf(entry.memory_id));
  const origins = new Set(learned.flatMap((memory) => (memory && (batch.who === "extraction" || memory.detail.model) ? describeOrigin(memory) : [])));
  // The end of a session names its job, which says nothing to a person; the end of a run says so.
  const author = batch.who === "conversation" && batch.why.includes(" ") ? batch.why : describeAuthor(batch.who);
  const step = batch.who === "extraction" && origins.size ? [] : [author];
  return [...step, ...[...origins].map((origin) => `by ${origin}`)].join(" · ");
}

/** @param {Change[]} changes newest first */
async function undoAll(changes) {
  let count = 0;
  await attempt(async () => {
    for (const { entry, replaced } of changes) {
      await undoTogether([entry.id, ...replaced.map((old) => old.id)]);
      count++;
    }
  });
  if (count) notify(`${plural(count, "change")} undone. Each can be undone back from its own line.`);
}

/** @param {Change} change */
async function undoOne({ entry, replaced }) {
  await attempt(async () => {
    await undoTogether([entry.id, ...replaced.map((old) => old.id)]);
    notify("Undone.", { undo: await undoOfNewest(entry.memory_id) });
  });
}

/** Messages that were kept and from which nothing was learned in the same step. @param {{changes: Change[], memoryOf: MemoryOf, at: string, who: string}} props */
function Messages({ changes, memoryOf, at, who }) {
  const first = memoryOf(changes.at(-1)?.entry.memory_id);
  return html`<p class="messages meta"><time datetime=${at} title=${fullTime(at)}>${clock(at)}</time>
    <span>${plural(changes.length, "message")} ${changes[0].entry.verb === "forget" ? "forgotten" : "kept"}${who === "proxy" ? " from a chat" : ""}${first?.session_id ? html` in <a href=${link("sessions", first.session_id, { project: first.project_id })}>${visible(first.session_id)}</a>` : ""}</span>
    <span class="messages-text" dir="auto">${first ? shorten(first.memory, 90) : ""}</span></p>`;
}

/** @param {{change: Change, memoryOf: MemoryOf, isUndone: boolean}} props */
function ChangeRow({ change, memoryOf, isUndone }) {
  const { entry } = change;
  const memory = memoryOf(entry.memory_id);
  const evidence = newEvidence(entry, memory);
  return html`<li class=${`change ${isUndone ? "undone" : ""}`}>
    <div class="change-what">
      <p class="change-text"><span class=${`verb ${toneOf(change)}`}>${verbOf(change, memory)}</span>
        <${ChangedText} entry=${entry} memory=${memory} memoryOf=${memoryOf} /></p>
      ${change.replaced.map((old) => html`<${Replaced} key=${old.id} id=${old.memory_id} memory=${memoryOf(old.memory_id)} />`)}
      <div class="meta">${memory && html`<${MemoryBadges} memory=${memory} />`}
        <${FieldChanges} entry=${entry} />
        <span class="change-actions">
          ${isUndone ? html`<span class="soft">undone</span>` : state.me?.write !== false && html`<button class="quiet small" onClick=${() => undoOne(change)} aria-label=${`Undo: ${shorten(memory?.memory, 60)}`}>Undo</button>`}
          ${memory && html`<a class="small" href=${link("memory", entry.memory_id)} aria-label=${`Open: ${shorten(memory.memory, 60)}`}>Open</a>`}
        </span>
      </div>
    </div>
    <div class="change-source">${evidence.length
      ? evidence.slice(0, 2).map((id) => html`<${Quote} key=${id} turn=${memoryOf(id)} memory=${memory?.memory ?? ""} />`)
      : entry.verb === "add" && memory && html`<p class="soft small">Stored directly, not learned from a message${memory.source ? `. Source: ${visible(describeOrigin(memory))}` : ""}.</p>`}
      ${evidence.length > 2 && html`<p class="soft small">and ${plural(evidence.length - 2, "more message")}</p>`}</div>
  </li>`;
}

/** The turns that this change came from: of an update only those it added. @param {HistoryEntry} entry @param {Memory | null | undefined} memory @returns {string[]} */
export function newEvidence(entry, memory) {
  if (entry.verb === "add") return memory?.evidence ?? [];
  const [before, after] = [entry.before?.evidence, entry.after.evidence];
  return Array.isArray(after) ? after.filter((id) => !Array.isArray(before) || !before.includes(id)) : [];
}

/** @param {Change} change @returns {Kind} the colour of the verb */
function toneOf({ entry, kind }) {
  if (entry.after.status === "review") return "changed";
  return kind === "changed" && ("evidence" in entry.after || entry.after.status === "active") ? "learned" : kind;
}

/** @param {Change} change @param {Memory | null | undefined} memory */
function verbOf({ entry, kind, replaced }, memory) {
  const status = /** @type {{status?: string}} */ (entry.after).status;
  if (entry.verb === "add") return status === "review" ? "Waits for review" : replaced.length ? "Replaced" : isRequested(entry) ? "Added" : "Learned";
  if (entry.verb === "undo") return status === "forgotten" ? "Took back" : status === "active" ? "Brought back" : status === "review" ? "Back to review" : "Undid";
  if (entry.verb === "restore") return "Restored";
  if (kind === "forgotten") return "Forgot";
  if (entry.verb === "supersede") return "Ended";
  if (status === "active" && entry.before?.status === "review") return "Approved";
  if ("evidence" in entry.after && !("content" in entry.after)) return "Said again";
  if (entry.after.valid_to && !entry.before?.valid_to) return "Ended";
  return memory ? "Changed" : "Changed what was erased";
}

/** @param {{entry: HistoryEntry, memory: Memory | null | undefined, memoryOf: MemoryOf}} props */
function ChangedText({ entry, memory, memoryOf }) {
  if (memory === undefined) return html`<span class="soft">…</span>`;
  if (memory === null) return html`<span class="soft">This memory was erased for good; only the fact that it changed is left.</span>`;
  const [before, after] = [entry.before?.content, entry.after.content];
  if (typeof before === "string" && typeof after === "string") {
    return html`<a class="memory-text" href=${link("memory", memory.id)}><${WordDiff} before=${before} after=${after} /></a>`;
  }
  if (entry.verb === "supersede") {
    const next = memoryOf(String(entry.after.superseded_by ?? ""));
    return html`<s><a class="memory-text" href=${link("memory", memory.id)}><${Text} text=${memory.memory} /></a></s>${next && html` → <a class="memory-text" href=${link("memory", next.id)}><${Text} text=${next.memory} /></a>`}`;
  }
  const isGone = entry.verb === "forget" || entry.after.status === "forgotten";
  const text = html`<a class="memory-text" href=${link("memory", memory.id)}><${Text} text=${memory.memory} /></a>`;
  return isGone ? html`<s>${text}</s>` : text;
}

/** @param {{id: string, memory: Memory | null | undefined}} props */
function Replaced({ id, memory }) {
  return html`<p class="replaced"><span class="visually-hidden">It replaced: </span><s>${memory ? html`<a class="memory-text" href=${link("memory", id)}><${Text} text=${memory.memory} /></a>` : memory === null ? "an erased memory" : "…"}</s></p>`;
}

const NAMED_FIELDS = ["importance", "confidence", "key", "value", "category", "trust", "tags", "expires_at", "valid_to"];

/** @param {{entry: HistoryEntry}} props */
function FieldChanges({ entry }) {
  if (entry.verb !== "update") return null;
  const names = NAMED_FIELDS.filter((name) => name in entry.after);
  return names.map((name) => html`<span key=${name}>${name.replace("_", " ")}: ${shown(name, entry.before?.[name])} → ${shown(name, entry.after[name])}</span>`);
}

/** @param {string} name @param {unknown} value @returns {string} */
function shown(name, value) {
  if (value === null || value === undefined) return "none";
  if (name === "expires_at" || name === "valid_to") return day(String(value));
  if (typeof value === "number") return String(Math.round(value * 100) / 100);
  return shorten(Array.isArray(value) ? value.join(", ") || "none" : value, 60);
}
