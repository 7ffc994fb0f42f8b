/** The inbox of memories that wait for a person, worked with the keyboard. */

import { html, useEffect, useLayoutEffect, useRef, useState } from "../vendor/preact.js";
import { ApiError, get, post, request } from "../api.js";
import { plural, shorten, visible } from "../format.js";
import { describeOrigin, undoOfNewest, useMemories } from "../memories.js";
import { attempt, link, messageOf, notify, useChanges, useLoad } from "../session.js";
import { Empty, Failure, Heading, MemoryBadges, MemoryLine, Text, Time } from "../components/basics.js";
import { EditDialog } from "../components/memory_actions.js";
import { Quote } from "../components/quote.js";
import { WordDiff } from "../components/word_diff.js";

/** @typedef {import("../api.js").Memory} Memory */
/** @typedef {"kept" | "rejected" | "skipped"} Decision */
/** @typedef {{id: string, text: string, decision: Decision, undo: () => Promise<unknown>}} Done */

const PAGE_SIZE = 100;
const NEAR_LIMIT = 4;
const KEYS = [
  { key: "k", title: "Keep" },
  { key: "r", title: "Reject" },
  { key: "e", title: "Edit first" },
  { key: "s", title: "Skip" },
  { key: "u", title: "Undo" },
];

/** @param {{route: import("../session.js").Route}} props */
export function View({ route }) {
  const inbox = useInbox(route.id);
  const [isEditing, setEditing] = useState(false);
  /** @type {Record<string, () => unknown>} */
  const actions = { k: () => inbox.decide("approve"), r: () => inbox.decide("reject"), e: () => inbox.current && setEditing(true), s: inbox.skip, u: inbox.undo };
  const latest = useRef(actions);
  latest.current = actions;
  useLayoutEffect(() => {
    /** @param {KeyboardEvent} event */
    const onKeyDown = (event) => {
      const target = /** @type {HTMLElement} */ (event.target);
      if (event.ctrlKey || event.metaKey || event.altKey || target.closest("input, textarea, select, dialog")) return;
      if (!(event.key in latest.current)) return;
      event.preventDefault();
      latest.current[event.key]();
    };
    document.addEventListener("keydown", onKeyDown);
    return () => document.removeEventListener("keydown", onKeyDown);
  }, []);
  const { current, done } = inbox;
  const decided = done.filter((each) => each.decision !== "skipped").length;
  const total = decided + inbox.left;
  return html`<${Heading} title="Review" intro="What nobody has vouched for waits here. It is not recalled until you keep it." />
    <${Failure} error=${inbox.error} retry=${inbox.reload} />
    ${total > 0 && html`<div class="progress"><progress max=${total} value=${decided} aria-label="Decided"></progress><span class="small soft" role="status">${decided} of ${total} decided${summary(done)}</span></div>`}
    ${current && html`<${Item} key=${current.id} memory=${current} />
      <div class="review-actions" role="toolbar" aria-label="Decide">${KEYS.map(
        ({ key, title }) => html`<button key=${key} class=${key === "k" ? "primary" : key === "r" ? "danger" : ""} disabled=${key === "u" && !done.length} onClick=${actions[key]} aria-keyshortcuts=${key}>${title}<kbd>${key}</kbd></button>`,
      )}</div>`}
    ${!current && inbox.isLoaded && html`<${NothingWaits} left=${inbox.left} done=${done.length} restart=${inbox.reload} undo=${inbox.undo} />`}
    ${isEditing && current && html`<${EditDialog} memory=${current} path=${`reviews/${current.id}`} onClose=${() => setEditing(false)} onSaved=${inbox.refresh} />`}
    <${DoneList} done=${done} />`;
}

/** @param {Done[]} done */
function summary(done) {
  const counts = /** @type {Decision[]} */ (["kept", "rejected", "skipped"]).map((decision) => ({ decision, count: done.filter((each) => each.decision === decision).length }));
  return counts.filter((each) => each.count).map((each) => ` · ${each.count} ${each.decision}`).join("");
}

/** One that waits: what it says, why it waits, its source; beside it what it would conflict with. @param {{memory: Memory}} props */
function Item({ memory }) {
  const turnOf = useMemories(memory.evidence);
  const near = useLoad(() => fetchNear(memory), [memory.id, memory.version]);
  const reason = String(memory.detail.review ?? "");
  const proposer = String(memory.detail.proposed_by ?? "");
  return html`<div class="columns review-item">
    <article class="card stack" aria-live="polite"><div class="meta"><${MemoryBadges} memory=${memory} /><${Time} at=${memory.created_at} /><a href=${link("memory", memory.id)}>Open</a></div>
      <p class="memory-full"><${Text} text=${memory.memory} /></p>
      <div class="why-waits"><h2>Why it waits</h2><p>${reason ? html`${capital(visible(reason))}.` : "It may change how the assistant behaves, and the user did not say it."}</p>
        <p class="soft small">Proposed by ${visible(proposer || "the extraction")} · source ${visible(describeOrigin(memory))} · trust ${memory.trust}${memory.trust === "high" ? "" : ": not the user's own words"}</p></div>
      ${memory.evidence.length > 0 && html`<div><h2>The words it came from</h2>${memory.evidence.slice(0, 3).map((id) => html`<${Quote} key=${id} turn=${turnOf(id)} memory=${memory.memory} />`)}</div>`}
    </article>
    <aside class="card" aria-label="Related memories"><h2>${near.data?.conflict ? "It would replace" : "What is remembered near it"}</h2><${Failure} error=${near.error} />
      ${near.data?.conflict && html`<${Conflict} old=${near.data.conflict} memory=${memory} /><h3 class="near-title">Near it</h3>`}
      ${near.data?.near.map((each) => html`<${MemoryLine} key=${each.id} memory=${each} />`)}
      ${near.data && !near.data.near.length && html`<p class="soft small">Nothing similar is remembered.</p>`}</aside>
  </div>`;
}

/** @param {string} text */
const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

/** @param {{old: Memory, memory: Memory}} props */
function Conflict({ old, memory }) {
  return html`<div class="conflict"><p><${WordDiff} before=${old.memory} after=${memory.memory} /></p>
    <div class="meta"><${MemoryBadges} memory=${old} /><a href=${link("memory", old.id)}>Open what holds now</a></div></div>`;
}

/** @param {Memory} memory @returns {Promise<{conflict: Memory | undefined, near: Memory[]}>} */
async function fetchNear(memory) {
  const [same, found] = await Promise.all([
    memory.key ? post("list", { filters: { key: memory.key }, limit: 5 }) : { results: [] },
    post("search", { query: memory.memory, filters: { not: { category: ["turn", "episode", "summary"] } }, limit: NEAR_LIMIT }, { project_id: memory.project_id }),
  ]);
  const conflict = same.results.find((/** @type {Memory} */ each) => each.project_id === memory.project_id) ?? same.results[0];
  return { conflict, near: found.results.filter((/** @type {Memory} */ each) => each.id !== conflict?.id && each.id !== memory.id) };
}

/** @param {{left: number, done: number, restart: () => void, undo: () => void}} props */
function NothingWaits({ left, done, restart, undo }) {
  if (left) return html`<${Empty} title="The rest was skipped"><p>${plural(left, "memory", "memories")} still ${left === 1 ? "waits" : "wait"}.</p><button onClick=${restart}>Go through them again</button></${Empty}>`;
  return html`<${Empty} title=${done ? "All decided" : "Nothing waits for review"}>
    <p class="explain">When an agent, a tool or a document tells the assistant what to do, Recollect does not simply believe it: such instructions wait here until a person keeps or rejects them. What you say yourself never waits.</p>
    ${done > 0 && html`<button onClick=${undo}>Undo the last decision <kbd>u</kbd></button>`}</${Empty}>`;
}

/** @param {{done: Done[]}} props */
function DoneList({ done }) {
  if (!done.length) return null;
  return html`<section class="done"><h2>Just now</h2><ul>${done.slice(-5).reverse().map(
    (each) => html`<li key=${each.id}><span class=${`verb ${each.decision === "kept" ? "learned" : each.decision === "rejected" ? "forgotten" : ""}`}>${each.decision}</span><a class="memory-text" href=${link("memory", each.id)}>${shorten(each.text, 120)}</a></li>`,
  )}</ul></section>`;
}

/** What waits, and what was decided in this sitting. @param {string} startId the memory to begin with */
function useInbox(startId) {
  const [items, setItems] = useState(/** @type {Memory[]} */ ([]));
  const [skipped, setSkipped] = useState(/** @type {string[]} */ ([]));
  const [done, showDone] = useState(/** @type {Done[]} */ ([]));
  // One after the other, so that undo takes back the decision before it.
  const decided = useRef(/** @type {Done[]} */ ([]));
  const work = useRef(/** @type {Promise<unknown>} */ (Promise.resolve()));
  const setDone = (/** @type {(before: Done[]) => Done[]} */ change) => showDone((decided.current = change(decided.current)));
  const [deciding, setDeciding] = useState(/** @type {string[]} */ ([]));
  const [status, setStatus] = useState({ isLoaded: false, error: "" });
  const left = items.filter((item) => !deciding.includes(item.id));
  const waiting = left.filter((item) => !skipped.includes(item.id));
  const current = waiting.find((item) => item.id === startId) ?? waiting[0];
  const refresh = async () => {
    try {
      const page = await get("reviews", { limit: PAGE_SIZE });
      setItems(page.results);
      setStatus({ isLoaded: true, error: "" });
    } catch (error) {
      setStatus({ isLoaded: true, error: messageOf(error) });
    }
  };
  useEffect(() => {
    refresh();
  }, []);
  useChanges((change) => {
    if (change.name === "erased" || change.data.after?.status || change.data.before?.status === "review") refresh();
  });
  /** @param {"approve" | "reject"} action */
  const decide = (action) => {
    if (!current) return;
    // The next one is shown at once; this one comes back if it fails.
    setDeciding((before) => [...before, current.id]);
    work.current = work.current.then(() => decideNow(current, action));
  };
  /** @param {Memory} current @param {"approve" | "reject"} action */
  const decideNow = async (current, action) => {
    await attempt(async () => {
      try {
        await request("POST", `reviews/${current.id}/${action}`, { headers: { "If-Match": `"${current.version}"` } });
      } catch (error) {
        if (error instanceof ApiError && error.status === 412) throw new Error("It was changed while you were reading. Here is the newest version: decide again.");
        throw error;
      }
      const undo = await undoOfNewest(current.id);
      setDone((before) => [...before, { id: current.id, text: current.memory, decision: action === "approve" ? "kept" : "rejected", undo }]);
    });
    await refresh();
    setDeciding((before) => before.filter((id) => id !== current.id));
  };
  const skip = () => {
    if (!current) return;
    setSkipped((before) => [...before, current.id]);
    setDone((before) => [...before, { id: current.id, text: current.memory, decision: "skipped", undo: async () => setSkipped((ids) => ids.filter((id) => id !== current.id)) }]);
  };
  const undo = () => {
    work.current = work.current.then(undoNow);
  };
  const undoNow = async () => {
    const last = decided.current.at(-1);
    if (!last) return;
    await attempt(async () => {
      await last.undo();
      setDone((before) => before.slice(0, -1));
      notify(`Back in the inbox: ${shorten(last.text, 60)}`);
    });
    await refresh();
  };
  const reload = () => {
    setSkipped([]);
    setDone((before) => before.filter((each) => each.decision !== "skipped"));
    refresh();
  };
  return { ...status, current, done, left: left.length, decide, skip, undo, refresh, reload };
}
