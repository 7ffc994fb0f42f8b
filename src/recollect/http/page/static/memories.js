/** Memories and turns by id, fetched in batches and cached; and what the words of the history mean. */

import { useEffect, useState } from "./vendor/preact.js";
import { get, post } from "./api.js";
import { state, useChanges } from "./session.js";

/** @typedef {import("./api.js").Memory} Memory */
/** @typedef {import("./api.js").HistoryEntry} HistoryEntry */

export const ALL_STATUSES = ["active", "superseded", "review", "forgotten"];
const BATCH_SIZE = 200;
const BATCH_WAIT_MS = 15;
const MAX_CACHED = 5_000;
// How many of the newest entries are looked through for those of a batch.
const RECENT = 50;

/** The memory of an id, or null if there is none (any more). @type {Map<string, Memory | null>} */
let cache = new Map();
let cachedUser = "";
/** @type {Set<string>} */
let wanted = new Set();
/** @type {Promise<void> | null} */
let nextBatch = null;

function forgetOtherUser() {
  if (cachedUser === state.user && cache.size < MAX_CACHED) return;
  cachedUser = state.user;
  cache = new Map();
}

/** Put memories that a list returned into the cache. @param {Memory[]} memories */
export function cacheMemories(memories) {
  forgetOtherUser();
  for (const memory of memories) cache.set(memory.id, memory);
}

/**
 * Fetch memories and turns that are not in the cache; calls of the same moment share their requests.
 * @param {Iterable<string>} ids
 * @returns {Promise<void>}
 */
export async function loadMemories(ids) {
  forgetOtherUser();
  const missing = [...ids].filter((id) => id && !cache.has(id));
  if (!missing.length) return;
  for (const id of missing) wanted.add(id);
  nextBatch ??= new Promise((resolve) => setTimeout(resolve, BATCH_WAIT_MS)).then(fetchWanted);
  await nextBatch;
}

async function fetchWanted() {
  const [ids, user] = [[...wanted], state.user];
  wanted = new Set();
  nextBatch = null;
  for (let start = 0; start < ids.length; start += BATCH_SIZE) {
    const part = ids.slice(start, start + BATCH_SIZE);
    const { results } = await post("list", { filters: { id: part }, statuses: ALL_STATUSES, turns: true, limit: BATCH_SIZE });
    if (user !== state.user) return;
    for (const id of part) cache.set(id, null);
    cacheMemories(results);
  }
}

/**
 * The memories of some ids: a memory, null if it was erased, undefined while it is fetched.
 * They are fetched again when they change.
 * @param {string[]} ids
 * @returns {(id: string | null | undefined) => Memory | null | undefined}
 */
export function useMemories(ids) {
  const [, refresh] = useState(0);
  const names = ids.join(" ");
  useEffect(() => {
    let ended = false;
    loadMemories(ids).then(
      () => !ended && refresh((count) => count + 1),
      () => {},
    );
    return () => {
      ended = true;
    };
  }, [names]);
  useChanges(
    (change) => {
      const id = change.data.memory_id;
      if (change.name === "erased") cache.clear();
      else if (!ids.includes(id)) return void cache.delete(id);
      else cache.delete(id);
      loadMemories(ids).then(
        () => refresh((count) => count + 1),
        () => {},
      );
    },
    [names],
  );
  return (id) => (id ? cache.get(id) : null);
}

// Authors of changes that nobody asked for at that moment.
const BACKGROUND = new Set(["extraction", "conversation", "upkeep", "reflection", "consolidation"]);
/** @param {{who: string}} entry @returns {boolean} whether a person or a program asked for the change */
export const isRequested = (entry) => !BACKGROUND.has(entry.who) && entry.who !== "proxy";

/** @type {Record<string, string>} */
const SOURCES = {
  selector: "the built-in selector, without an LLM",
  rules: "built-in rules, without an LLM",
  extraction: "an LLM that read the conversation",
  reflection: "an LLM that looked over older memories",
  conversation: "the conversation itself",
  tool: "an agent's tool call",
};
/** @param {string} source @returns {string} */
export const describeSource = (source) => SOURCES[source] ?? (source ? `“${source}”` : "no source given");
/** How summaries and episodes without an LLM were made. @type {Record<string, string>} */
const MADE = { extract: "quotes, without an LLM", given: "the agent's own report", "model and extract": "an LLM and quotes" };
/** What an LLM did to state a memory, by its source. @type {Record<string, string>} */
const LLM_WORK = { reflection: "looked over older memories", consolidation: "merged older memories" };

/** @param {Memory} memory @returns {string} who or what found it out: the name of the LLM, or the built-in selector */
export function describeOrigin({ source, detail }) {
  return detail.model ? `${detail.model}, which ${LLM_WORK[source] ?? "read the conversation"}` : (MADE[String(detail.made)] ?? describeSource(source));
}

/** @type {Record<string, string>} */
const AUTHORS = {
  extraction: "learning from a conversation",
  conversation: "the end of a session",
  upkeep: "maintenance",
  reflection: "reflection",
  proxy: "a chat",
  http: "the REST API",
  python: "a Python program",
  import: "an import",
  sample: "the sample data",
  "web page": "a person on this page",
};
/** @param {string} who @returns {string} */
export const describeAuthor = (who) => AUTHORS[who.endsWith(" sample") ? "sample" : who] ?? (who.endsWith(" web page") ? `${who.slice(0, -9)} on this page` : who || "unknown");

/**
 * The part of a turn that a memory came from: the sentence that shares most words with it, and what stands around it.
 * @param {string} turn @param {string} memory
 * @returns {{before: string, quote: string, after: string}}
 */
export function findQuote(turn, memory) {
  const words = new Set(wordsOf(memory));
  const sentences = turn.match(/[^.!?\n]+(?:[.!?]+(?=\s|$)|\n|$|[.!?])\s*/g) ?? [turn];
  let [best, bestShared] = [-1, 0];
  sentences.forEach((sentence, index) => {
    const shared = wordsOf(sentence).filter((word) => words.has(word)).length;
    if (shared > bestShared) [best, bestShared] = [index, shared];
  });
  if (best < 0) return { before: "", quote: turn, after: "" };
  return { before: sentences.slice(0, best).join(""), quote: sentences[best], after: sentences.slice(best + 1).join("") };
}

/** @param {string} text @returns {string[]} */
const wordsOf = (text) => text.toLowerCase().match(/[\p{L}\p{N}]{2,}/gu) ?? [];

/**
 * A function that takes the newest change of a memory back, with what else it changed; ask for it right after the
 * change was made.
 * @param {string} memoryId @returns {Promise<() => Promise<unknown>>}
 */
export async function undoOfNewest(memoryId) {
  const [newest] = (await get(`memories/${memoryId}/history`, { limit: 1 })).results;
  const { results } = await get("history", { limit: RECENT });
  const others = results.filter((/** @type {HistoryEntry} */ entry) => entry.batch === newest.batch && entry.id !== newest.id);
  return () => undoTogether([newest.id, ...others.map((/** @type {HistoryEntry} */ entry) => entry.id)]);
}

/**
 * Undo entries of one batch. Undoing an addition brings back what it replaced, so the others are looked up again.
 * @param {number[]} ids
 */
export async function undoTogether([first, ...others]) {
  await post("undo", { change_id: first });
  if (!others.length) return;
  const { results } = await get("history", { limit: RECENT });
  const undone = new Set(results.map((/** @type {HistoryEntry} */ entry) => entry.undoes));
  for (const id of others) if (!undone.has(id)) await post("undo", { change_id: id });
}
