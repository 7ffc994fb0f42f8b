/** Actions on many memories at once, each with its way back. */

import { get, patch, post } from "./api.js";
import { plural } from "./format.js";
import { isRequested } from "./memories.js";
import { attempt, notify } from "./session.js";

/** @typedef {import("./api.js").Memory} Memory */
/** @typedef {import("./api.js").HistoryEntry} HistoryEntry */
/** @typedef {(done: number, total: number) => void} Progress */

const AT_ONCE = 4;
const IDS_PER_REQUEST = 200;
const PAGE_SIZE = 1000;

/**
 * Run an action for each item, a few at a time. @template T
 * @param {T[]} items @param {(item: T) => Promise<unknown>} action @param {Progress} [onProgress]
 */
async function forEach(items, action, onProgress) {
  let [next, done] = [0, 0];
  const work = async () => {
    while (next < items.length) {
      await action(items[next++]);
      onProgress?.(++done, items.length);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
}

/** @template T @param {T[]} items @param {number} size @returns {T[][]} */
const inParts = (items, size) => Array.from({ length: Math.ceil(items.length / size) }, (_, index) => items.slice(index * size, (index + 1) * size));

/** Every memory of a listing. @param {Record<string, unknown>} listing @param {Progress} [onProgress] @param {number} [total] @returns {Promise<Memory[]>} */
export async function fetchAll(listing, onProgress, total = 0) {
  /** @type {Memory[]} */
  const memories = [];
  /** @type {string | null} */
  let cursor = null;
  do {
    /** @type {{results: Memory[], cursor: string | null}} */
    const page = await post("list", { ...listing, limit: PAGE_SIZE, cursor });
    memories.push(...page.results);
    cursor = page.cursor;
    onProgress?.(memories.length, total);
  } while (cursor);
  return memories;
}

/** @param {Memory[]} memories @param {Progress} onProgress */
export async function forgetMemories(memories, onProgress) {
  const active = memories.filter((memory) => memory.status === "active");
  if (!active.length) return notify("None of the selected memories is active, so there is nothing to forget.");
  await attempt(async () => {
    let done = 0;
    for (const part of inParts(active, IDS_PER_REQUEST)) {
      await post("forget", { filters: { id: part.map((memory) => memory.id) } });
      onProgress((done += part.length), active.length);
    }
    notify(`${plural(active.length, "memory", "memories")} forgotten.`, { undo: () => restoreEach(active) });
  });
}

/** Forget what a filter selects, as one change. @param {Record<string, unknown>} filters */
export async function forgetByFilter(filters) {
  await attempt(async () => {
    const { forgotten } = await post("forget", { filters: { and: [filters, { not: { category: "turn" } }] } });
    const { results } = await get("history", { limit: 50 });
    const newest = results.find((/** @type {HistoryEntry} */ entry) => entry.verb === "forget");
    notify(`${plural(forgotten, "memory", "memories")} forgotten.`, { undo: () => undoBatch(newest.batch) });
  });
}

/** Undo a batch; the server undoes whole batches only for the last change that was asked for. @param {string} batch */
async function undoBatch(batch) {
  const { results } = await get("history", { limit: 200 });
  const last = results.find((/** @type {HistoryEntry} */ entry) => isRequested(entry) && entry.undoes === null);
  if (last?.batch !== batch) throw new Error("Something else was changed since. Choose the status “forgotten” and restore them there.");
  await post("undo");
  notify("Undone.");
}

/** @param {Memory[]} memories */
const restoreEach = (memories) => forEach(memories, (memory) => post(`memories/${memory.id}/restore`)).then(() => notify(`${plural(memories.length, "memory", "memories")} restored.`));

/** @param {Memory[]} memories @param {Progress} onProgress */
export async function restoreMemories(memories, onProgress) {
  const gone = memories.filter((memory) => memory.status === "forgotten" || memory.status === "superseded");
  if (!gone.length) return notify("The selected memories are active: there is nothing to restore.");
  await attempt(async () => {
    await forEach(gone, (memory) => post(`memories/${memory.id}/restore`), onProgress);
    const ids = gone.map((memory) => memory.id);
    notify(`${plural(gone.length, "memory", "memories")} restored.`, {
      undo: async () => {
        for (const part of inParts(ids, IDS_PER_REQUEST)) await post("forget", { filters: { id: part } });
        notify("Undone.");
      },
    });
  });
}

/** Add a tag, or remove it if all of them have it. @param {Memory[]} memories @param {string} tag @param {Progress} onProgress */
export async function tagMemories(memories, tag, onProgress) {
  const removes = memories.every((memory) => memory.tags.includes(tag));
  const changed = removes ? memories : memories.filter((memory) => !memory.tags.includes(tag));
  const tagsOf = (/** @type {Memory} */ memory) => (removes ? memory.tags.filter((each) => each !== tag) : [...memory.tags, tag]);
  await attempt(async () => {
    await forEach(changed, (memory) => patch(`memories/${memory.id}`, { tags: tagsOf(memory) }), onProgress);
    notify(`${removes ? "Removed" : "Added"} the tag “${tag}” ${removes ? "from" : "to"} ${plural(changed.length, "memory", "memories")}.`, {
      undo: () => forEach(changed, (memory) => patch(`memories/${memory.id}`, { tags: memory.tags })).then(() => notify("Undone.")),
    });
  });
}

/** Offer memories as a download, in the format that the import reads. @param {Memory[]} memories @param {string} name */
export function download(memories, name) {
  const lines = memories.map((memory) => `${JSON.stringify(memory)}\n`);
  const url = URL.createObjectURL(new Blob(lines, { type: "application/x-ndjson" }));
  const anchor = Object.assign(document.createElement("a"), { href: url, download: name });
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
  notify(`${plural(memories.length, "memory", "memories")} exported to ${name}.`);
}
