/** What was just learned, changed and forgotten, live, beside the words it came from. */

import { html, useCallback, useEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { get } from "../api.js";
import { dayHeading } from "../format.js";
import { useMemories } from "../memories.js";
import { messageOf, setQuery, useChanges } from "../session.js";
import { Empty, Failure, Heading } from "../components/basics.js";
import { ChangeBatch, condense, groupByBatch, newEvidence } from "../components/change_batch.js";
import { Welcome } from "../components/first_start.js";

/** @typedef {import("../api.js").HistoryEntry} HistoryEntry */
/** @typedef {import("../components/change_batch.js").Batch} Batch */

const PAGE_SIZE = 100;
// Pages that are loaded without a click while the end of the list stays in view.
const MAX_AUTOMATIC = 6;
const FLUSH_MS = 200;
// With more live changes than this, such as after an import or a long day, the list starts again from the newest.
const MAX_LIVE = 300;
const NEAR_TOP_PX = 120;

const FILTERS = [
  { name: "", title: "Everything" },
  { name: "learned", title: "Learned" },
  { name: "changed", title: "Changed" },
  { name: "forgotten", title: "Forgotten" },
  { name: "person", title: "By a person" },
];

/** @param {{route: import("../session.js").Route}} props */
export function View({ route }) {
  const feed = useFeed();
  const filter = route.query.get("kind") ?? "";
  const ids = useMemo(() => [...new Set(feed.entries.flatMap((entry) => [entry.memory_id, ...newEvidence(entry, null), String(entry.after.superseded_by ?? "")]))], [feed.entries]);
  const memoryOf = useMemories(ids);
  // The turns of a memory are known when the memory is.
  const turnIds = [...new Set(ids.flatMap((id) => memoryOf(id)?.evidence ?? []))];
  useMemories(turnIds);
  const undone = useMemo(() => new Set(feed.entries.map((entry) => entry.undoes ?? 0)), [feed.entries]);
  const batches = groupByBatch(feed.entries, memoryOf).map((batch) => narrow(batch, filter)).filter((batch) => batch.changes.length > 0);
  const days = groupByDay(condense(batches, new Set(turnIds)));
  const isEmpty = !feed.entries.length && feed.isLoaded;
  return html`<${Heading} title="Timeline" intro=${isEmpty ? "" : "What was learned, changed and forgotten, newest first, beside the words it came from."} />
    ${!isEmpty && html`<div class="segments" role="group" aria-label="Show">${FILTERS.map(
      (each) => html`<button key=${each.name} aria-pressed=${filter === each.name} onClick=${() => setQuery({ kind: each.name })}>${each.title}</button>`,
    )}</div>`}
    <${Failure} error=${feed.error} retry=${feed.reload} />
    ${feed.waiting > 0 && html`<div class="new-entries"><button class="primary" onClick=${feed.showWaiting}>${feed.waiting > 99 ? "Many" : feed.waiting} new ↑</button></div>`}
    ${isEmpty && html`<${Welcome} onSample=${feed.reload} />`}
    ${days.map((day) => html`<section class="day" key=${day.title}><h2 class="day-title">${day.title}</h2>
      ${day.batches.map((batch) => html`<${ChangeBatch} key=${`${batch.id} ${batch.changes[0].entry.id}`} batch=${batch} memoryOf=${memoryOf} undone=${undone} isFresh=${batch.changes[0].entry.id > feed.freshAfter} />`)}
    </section>`)}
    ${!days.length && feed.entries.length > 0 && !feed.hasMore && html`<${Empty} title="Nothing of this kind"><p>No change so far is of this kind. <button onClick=${() => setQuery({ kind: "" })}>Show everything</button></p></${Empty}>`}
    ${feed.hasMore && html`<${Older} load=${feed.loadOlder} count=${feed.entries.length} />`}
    ${!feed.hasMore && days.length > 0 && html`<p class="soft small end">This is where the history begins.</p>`}`;
}

/** @param {Batch} batch @param {string} filter @returns {Batch} */
function narrow(batch, filter) {
  if (!filter) return batch;
  const changes = batch.changes.filter((change) => change.kind !== "message" && (filter === "person" ? change.entry.actor === "person" : change.kind === filter));
  return { ...batch, changes };
}

/** @param {Batch[]} batches @returns {{title: string, batches: Batch[]}[]} */
function groupByDay(batches) {
  /** @type {{title: string, batches: Batch[]}[]} */
  const days = [];
  for (const batch of batches) {
    const title = dayHeading(batch.at);
    if (days.at(-1)?.title === title) days.at(-1)?.batches.push(batch);
    else days.push({ title, batches: [batch] });
  }
  return days;
}

/** Load older entries when the end comes into view; a button where that is not enough. @param {{load: () => Promise<void>, count: number}} props */
function Older({ load, count }) {
  const element = useRef(/** @type {HTMLElement | null} */ (null));
  const automatic = useRef(0);
  const [isBusy, setBusy] = useState(false);
  const run = async () => {
    setBusy(true);
    await load();
    setBusy(false);
  };
  useEffect(() => {
    const observer = new IntersectionObserver(
      ([seen]) => {
        if (!seen.isIntersecting) automatic.current = 0;
        else if (automatic.current++ < MAX_AUTOMATIC) run();
      },
      { rootMargin: "600px" },
    );
    if (element.current) observer.observe(element.current);
    return () => observer.disconnect();
  }, [count]);
  return html`<p class="end" ref=${element}><button onClick=${run} disabled=${isBusy}>${isBusy ? "Loading…" : "Show older changes"}</button></p>`;
}

/** The history, newest first: pages of it, and what happens meanwhile. */
function useFeed() {
  const [entries, setEntries] = useState(/** @type {HistoryEntry[]} */ ([]));
  const [waiting, setWaiting] = useState(/** @type {HistoryEntry[]} */ ([]));
  const [status, setStatus] = useState({ cursor: /** @type {string | null} */ (null), isLoaded: false, error: "", freshAfter: Infinity });
  const arrived = useRef(/** @type {HistoryEntry[]} */ ([]));
  // What was shown live since the newest page was asked for, which may lack it.
  const live = useRef(/** @type {HistoryEntry[]} */ ([]));
  const round = useRef(0);
  const timer = useRef(0);
  const reload = useCallback(async () => {
    const number = ++round.current;
    live.current = [];
    try {
      const page = await get("history", { limit: PAGE_SIZE });
      if (number !== round.current) return;
      setEntries(mergeNewest(live.current, page.results));
      setWaiting([]);
      setStatus((before) => ({ cursor: page.cursor, isLoaded: true, error: "", freshAfter: Math.min(before.freshAfter, page.results[0]?.id ?? 0) }));
    } catch (error) {
      setStatus((before) => ({ ...before, error: messageOf(error) }));
    }
  }, []);
  const loadOlder = useCallback(async () => {
    try {
      const page = await get("history", { limit: PAGE_SIZE, cursor: status.cursor });
      setEntries((before) => [...before, ...page.results]);
      setStatus((before) => ({ ...before, cursor: page.cursor, error: "" }));
    } catch (error) {
      setStatus((before) => ({ ...before, error: messageOf(error) }));
    }
  }, [status.cursor]);
  /** @param {HistoryEntry[]} news newest first */
  const show = (news) => {
    live.current = mergeNewest(news, live.current);
    if (live.current.length > MAX_LIVE) reload();
    else setEntries((before) => mergeNewest(news, before));
  };
  const flush = () => {
    timer.current = 0;
    const news = arrived.current.reverse();
    arrived.current = [];
    if (window.scrollY < NEAR_TOP_PX) show(news);
    // More than these are not shown one by one.
    else setWaiting((before) => mergeNewest(news, before).slice(0, MAX_LIVE + 1));
  };
  useChanges((change) => {
    if (change.name === "erased") return void reload();
    arrived.current.push(change.data);
    timer.current ||= window.setTimeout(flush, FLUSH_MS);
  }, [reload]);
  useEffect(() => {
    reload();
    return () => clearTimeout(timer.current);
  }, []);
  const showWaiting = () => {
    show(waiting);
    setWaiting([]);
    window.scrollTo({ top: 0 });
  };
  return { entries, waiting: waiting.length, hasMore: status.cursor !== null, ...status, reload, loadOlder, showWaiting };
}

/** @param {HistoryEntry[]} news newest first @param {HistoryEntry[]} before @returns {HistoryEntry[]} */
function mergeNewest(news, before) {
  const newest = before[0]?.id ?? 0;
  return [...news.filter((entry) => entry.id > newest), ...before];
}
