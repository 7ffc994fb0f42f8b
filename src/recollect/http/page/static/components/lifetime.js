/** How a memory came to be and what came after it: versions, what replaced what, and what held at a time. */

import { html, useEffect, useMemo, useState } from "../vendor/preact.js";
import { get, post } from "../api.js";
import { day, fullTime, shorten, visible } from "../format.js";
import { ALL_STATUSES, describeAuthor, undoOfNewest } from "../memories.js";
import { attempt, link, notify, state, useLoad } from "../session.js";
import { Failure, Text, Time } from "./basics.js";
import { WordDiff } from "./word_diff.js";

/** @typedef {import("../api.js").Memory} Memory */
/** @typedef {import("../api.js").HistoryEntry} HistoryEntry */

const MAX_CHAIN = 30;
const SLIDER_STEPS = 400;
const SLIDER_WAIT_MS = 120;

/** @param {Memory} memory @returns {string} the time from which it held */
const startOf = (memory) => memory.valid_from ?? memory.created_at;

/**
 * The memories that replaced each other, oldest first. @param {Memory} memory @param {AbortSignal} signal @returns {Promise<Memory[]>}
 */
export async function fetchChain(memory, signal) {
  /** @type {Map<string, Memory>} */
  const chain = new Map([[memory.id, memory]]);
  let newest = memory;
  while (newest.superseded_by && chain.size < MAX_CHAIN && !chain.has(newest.superseded_by)) {
    newest = await get(`memories/${newest.superseded_by}`, {}, signal);
    chain.set(newest.id, newest);
  }
  let front = [memory.id];
  while (front.length && chain.size < MAX_CHAIN) {
    const found = await Promise.all(front.map((id) => predecessorsOf(id, memory.project_id, signal)));
    const ids = [...new Set(found.flat())].filter((id) => !chain.has(id));
    const { results } = ids.length ? await post("list", { filters: { id: ids }, statuses: ALL_STATUSES }) : { results: [] };
    for (const each of results) chain.set(each.id, each);
    front = ids;
  }
  return [...chain.values()].sort((a, b) => startOf(a).localeCompare(startOf(b)));
}

/** @param {string} id @param {string | null} project @param {AbortSignal} signal @returns {Promise<string[]>} */
async function predecessorsOf(id, project, signal) {
  const graph = await get("graph", { around: id, depth: 1, limit: 200, superseded: true, project_id: project }, signal);
  const node = `memory:${id}`;
  const edges = graph.edges.filter((/** @type {{kind: string, target: string}} */ edge) => edge.kind === "superseded_by" && edge.target === node);
  return edges.map((/** @type {{source: string}} */ edge) => edge.source.replace(/^memory:/, ""));
}

/** What held when, newest at the top. @param {{chain: Memory[], memory: Memory}} props */
export function Chain({ chain, memory }) {
  if (chain.length < 2) return html`<p class="soft">It replaced nothing, and nothing has replaced it.</p>`;
  return html`<ol class="chain">${[...chain].reverse().map((each) => {
    const isHere = each.id === memory.id;
    return html`<li key=${each.id} class=${`${each.status} ${isHere ? "here" : ""}`} aria-current=${isHere ? "true" : undefined}>
      <p class="small soft">${day(startOf(each))} – ${each.valid_to ? day(each.valid_to) : each.status === "active" ? "now" : each.status}</p>
      ${isHere ? html`<p><${Text} text=${each.memory} /></p>` : html`<p><a class="memory-text" href=${link("memory", each.id)}><${Text} text=${each.memory} /></a></p>`}
    </li>`;
  })}</ol>`;
}

/** The times of changes, without those within a second of the next. @param {Memory[]} chain @param {HistoryEntry[]} history @returns {number[]} */
function momentsOf(chain, history) {
  const times = [...chain.map(startOf), ...chain.flatMap((each) => each.valid_to ?? []), ...history.map((entry) => entry.at)].map((at) => Date.parse(at)).sort((a, b) => a - b);
  return times.filter((time, index) => index === times.length - 1 || times[index + 1] - time > 1000);
}

/** What held at a time, chosen with a slider over the lifetime. @param {{chain: Memory[], history: HistoryEntry[]}} props */
export function AsOf({ chain, history }) {
  const moments = useMemo(() => momentsOf(chain, history), [chain, history]);
  const end = useMemo(() => Date.now(), [chain, history]);
  const start = moments[0] - Math.max(60_000, (end - moments[0]) / 20);
  const [time, setTime] = useState(end);
  const [held, setHeld] = useState(/** @type {Memory[] | null} */ (null));
  const [error, setError] = useState("");
  const ids = chain.map((each) => each.id).join(" ");
  useEffect(() => {
    let ended = false;
    const timer = setTimeout(async () => {
      try {
        const { results } = await post("list", { filters: { id: ids.split(" ") }, as_of: new Date(time).toISOString() });
        if (!ended) setHeld(results);
        setError("");
      } catch (problem) {
        setError(String(problem));
      }
    }, SLIDER_WAIT_MS);
    return () => {
      ended = true;
      clearTimeout(timer);
    };
  }, [time, ids]);
  const iso = new Date(time).toISOString();
  const before = moments.filter((each) => each < time - 1).at(-1);
  const after = moments.find((each) => each > time + 1);
  return html`<div class="as-of">
    <label for="as-of">On <strong>${fullTime(iso)}</strong></label>
    <div class="row as-of-row"><button class="quiet" disabled=${before === undefined} onClick=${() => setTime(before ?? time)} aria-label="To the change before">◀</button>
      <input id="as-of" type="range" min=${start} max=${end} step=${Math.max(1, (end - start) / SLIDER_STEPS)} value=${time} aria-valuetext=${fullTime(iso)}
        onInput=${(/** @type {Event} */ event) => setTime(Number(/** @type {HTMLInputElement} */ (event.target).value))} />
      <button class="quiet" disabled=${after === undefined} onClick=${() => setTime(after ?? end)} aria-label="To the change after">▶</button></div>
    <div class="as-of-held" aria-live="polite"><${Failure} error=${error} />
      ${held?.map((each) => html`<p key=${each.id}><span class="soft small">it was remembered:</span> <${Text} text=${each.memory} /></p>`)}
      ${held?.length === 0 && html`<p class="soft">Nothing of this was remembered then.</p>`}</div>
  </div>`;
}

/** @param {{memory: Memory, reloadWhen: unknown}} props */
export function useHistory({ memory, reloadWhen }) {
  return useLoad((signal) => get(`memories/${memory.id}/history`, { limit: 200 }, signal).then((page) => /** @type {HistoryEntry[]} */ (page.results)), [memory.id, reloadWhen]);
}

/** @type {Record<string, string>} */
const VERBS = { add: "Added", update: "Changed", supersede: "Replaced", forget: "Forgotten", restore: "Restored", undo: "Undone" };

/** Each change with its difference, newest first. @param {{history: HistoryEntry[]}} props */
export function Versions({ history }) {
  const undone = new Set(history.map((entry) => entry.undoes ?? 0));
  return html`<ol class="versions">${history.map(
    (entry) => html`<li key=${entry.id}>
      <div class="meta"><strong>${VERBS[entry.verb] ?? entry.verb}</strong><span>version ${entry.version}</span><span>by ${visible(describeAuthor(entry.who))}</span><${Time} at=${entry.at} />
        ${entry.why && entry.who !== "extraction" && html`<span>“${shorten(entry.why, 160)}”</span>`}
        ${undone.has(entry.id) ? html`<span>undone</span>` : entry.verb !== "undo" && state.me?.write !== false && html`<button class="quiet small" onClick=${() => undo(entry)}>Undo</button>`}</div>
      <${Difference} entry=${entry} /></li>`,
  )}</ol>`;
}

/** @param {HistoryEntry} entry */
const undo = (entry) =>
  attempt(async () => {
    await post("undo", { change_id: entry.id });
    notify("Undone.", { undo: await undoOfNewest(entry.memory_id) });
  });

// Their values are ids, which say nothing to a person.
const HIDDEN_FIELDS = ["superseded_by", "evidence"];

/** @param {{entry: HistoryEntry}} props */
function Difference({ entry }) {
  const names = entry.before ? Object.keys(entry.after).filter((name) => !HIDDEN_FIELDS.includes(name)) : [];
  return names.map((name) => {
    const [before, after] = [entry.before?.[name], entry.after[name]].map((value) => (typeof value === "string" ? value : value === null || value === undefined ? "none" : Array.isArray(value) ? value.join(", ") || "none" : JSON.stringify(value)));
    return html`<p key=${name} class="difference"><span class="soft small">${name.replaceAll("_", " ")}</span> <${WordDiff} before=${before} after=${after} /></p>`;
  });
}
