/** Sessions: transcripts with what was learned from each turn, summaries, episodes and the runs of agents. */

import { html, useEffect, useLayoutEffect, useRef, useState } from "../vendor/preact.js";
import { get, post } from "../api.js";
import { Badge, Dialog, Empty, Failure, Heading, MemoryBadges, Text, Time } from "../components/basics.js";
import { ErasureReceipt } from "../components/memory_actions.js";
import { clock, dayHeading, plural, shorten, visible } from "../format.js";
import { ALL_STATUSES, describeOrigin } from "../memories.js";
import { attempt, link, notify, setQuery, state, useChanges, useLoad } from "../session.js";

/** @typedef {import("../api.js").Memory} Memory */
/** @typedef {import("../api.js").Turn} Turn */
/** @typedef {{query?: string, summary?: string, result?: string, timestamp?: string, run_id?: string, turn_end?: number}} Run */

const PAGE = 100;
// A transcript longer than this is cut; the REST API has the rest.
const MAX_TURNS = 5000;
const RELOAD_WAIT_MS = 800;
// What is about the session as a whole stands above its transcript.
const OVERVIEW = ["summary", "episode", "lesson"];

/** @param {{route: import("../session.js").Route}} props */
export function View({ route }) {
  return route.id ? html`<${Session} key=${route.id} id=${route.id} project=${route.query.get("project") ?? ""} turn=${route.query.get("turn") ?? ""} />` : html`<${SessionList} />`;
}

function SessionList() {
  const [more, setMore] = useState(/** @type {any[]} */ ([]));
  const [cursor, setCursor] = useState(/** @type {string | null | undefined} */ (undefined));
  const { data, error, reload } = useLoad(() => get("sessions", { limit: PAGE }), []);
  const next = cursor === undefined ? data?.cursor : cursor;
  const sessions = [...(data?.results ?? []), ...more];
  const loadMore = () => attempt(async () => {
    const page = await get("sessions", { limit: PAGE, cursor: next });
    setMore([...more, ...page.results]);
    setCursor(page.cursor);
  });
  return html`<${Heading} title="Sessions" intro="Conversations as they were said, beside what was learned from them." />
    <${Failure} error=${error} retry=${reload} />
    ${data && !sessions.length && html`<${Empty} title="No session yet"><p>A session appears with the first message of a chat.</p></${Empty}>`}
    <ul class="plain">${sessions.map(
      (each) => html`<li class="memory-line" key=${`${each.project_id}/${each.session_id}`}>
        <a class="memory-text" href=${link("sessions", each.session_id, { project: each.project_id })}><${Text} text=${each.summary ? shorten(each.summary, 160) : each.session_id} /></a>
        <div class="meta">${each.project_id && html`<${Badge} name=${each.project_id} />`}<span>${plural(each.turn_count, "turn")}</span>
          ${each.summary && html`<span class="mono">${shorten(each.session_id, 40)}</span>`}
          ${each.learned_to < each.turn_count && html`<${Badge} name="not yet learned from" kind="warn" />`}
          ${each.closed_at && html`<${Badge} name="ended" />`}<${Time} at=${each.last_turn_at} /></div></li>`,
    )}</ul>
    ${next && html`<button onClick=${loadMore}>Show more</button>`}`;
}

/** @param {{id: string, project: string, turn: string}} props */
function Session({ id, project, turn }) {
  const scope = { session_id: id, project_id: project };
  const { data, error, reload } = useLoad(() => loadSession(scope), [id, project]);
  const [confirms, setConfirms] = useState(false);
  // Summaries and episodes are made in the background.
  const timer = useRef(0);
  useChanges(() => {
    clearTimeout(timer.current);
    timer.current = window.setTimeout(reload, RELOAD_WAIT_MS);
  });
  useEffect(() => () => clearTimeout(timer.current), []);
  const end = () => attempt(async () => {
    await post("session/end", {}, scope);
    notify("The session has ended; its summary and episode are made in the background.");
    reload();
  });
  return html`<${Heading} title=${visible(id)} intro=${data ? `${plural(data.session.turn_count, "turn")}, ${plural(data.memories.size, "memory", "memories")} learned` : ""}
      actions=${html`<a class="button" href=${link("sessions")}>All sessions</a>
        ${data && !data.session.closed_at && html`<button onClick=${end}>End session</button>`}<button class="danger" onClick=${() => setConfirms(true)}>Erase…</button>`} />
    <${Failure} error=${error} retry=${reload} />
    ${data && html`<div class="stack">
      <${Overview} session=${data.session} overview=${data.overview} />
      <${Transcript} turns=${data.turns} memories=${data.memories} turn=${turn} />
    </div>`}
    ${confirms && html`<${EraseDialog} scope=${scope} onClose=${() => setConfirms(false)} />`}`;
}

/** @param {{session_id: string, project_id: string}} scope */
async function loadSession(scope) {
  const session = await get("session", scope);
  const { results } = await post("list", { filters: { session_id: scope.session_id, category: OVERVIEW }, statuses: ["active", "review"], order: "oldest", limit: 1000 });
  /** @type {Memory[]} */
  const overview = results.filter((/** @type {Memory} */ each) => (each.project_id ?? "") === scope.project_id);
  /** @type {Turn[]} */
  const turns = [];
  let cursor = null;
  do {
    const page = /** @type {import("../api.js").Page<Turn>} */ (await get("turns", { ...scope, limit: 1000, cursor }));
    turns.push(...page.results);
    cursor = page.cursor;
  } while (cursor && turns.length < MAX_TURNS);
  const ids = [...new Set(turns.flatMap((turn) => turn.learned ?? []))];
  /** @type {Map<string, Memory>} */
  const memories = new Map();
  for (let at = 0; at < ids.length; at += 100) {
    const page = await post("list", { filters: { id: { in: ids.slice(at, at + 100) } }, statuses: ALL_STATUSES, limit: 100 });
    for (const each of page.results) if (!OVERVIEW.includes(each.category)) memories.set(each.id, each);
  }
  return { session, overview, turns, memories };
}

/** The summary, the episodes with their lessons, and the runs of agents. @param {{session: any, overview: Memory[]}} props */
function Overview({ session, overview }) {
  const summary = overview.find((each) => each.category === "summary");
  const episodes = overview.filter((each) => each.category === "episode");
  const lessonsOf = (/** @type {string} */ id) => overview.filter((each) => each.category === "lesson" && each.detail.episode_id === id);
  // The others are exchanges, which are in the transcript.
  const runs = /** @type {Run[]} */ (session.invocations).filter((each) => each.run_id || each.turn_end === undefined);
  return html`${session.summary && html`<section class="card"><h2>Summary</h2><p><${Text} text=${session.summary} /></p>${summary && html`<${OverviewMeta} memory=${summary} />`}</section>`}
    ${episodes.length > 0 && html`<section class="card"><h2>Episodes</h2><ul class="plain">${episodes.map(
      (each) => html`<li class="memory-line" key=${each.id}><${Text} text=${each.memory} /><${OverviewMeta} memory=${each} />
        <ul class="learned">${lessonsOf(each.id).map((lesson) => html`<li key=${lesson.id}><${Text} text=${lesson.memory} /><${OverviewMeta} memory=${lesson} /></li>`)}</ul></li>`,
    )}</ul></section>`}
    ${runs.length > 0 && html`<${Runs} runs=${runs} episodes=${episodes} />`}`;
}

/** @param {{memory: Memory}} props */
function OverviewMeta({ memory }) {
  const [first, last] = [memory.detail.turn_start, memory.detail.turn_end].map(Number);
  const aim = () => setQuery({ turn: document.querySelector(`[data-position="${first}"]`)?.id });
  return html`<div class="meta">${memory.category === "lesson" && html`<${Badge} name="lesson" />`}${memory.status === "review" && html`<${Badge} name="waits for review" kind="status" />`}
    ${first > 0 && html`<button class="quiet small" onClick=${aim}>${first === last ? `turn ${first}` : `turns ${first} to ${last}`}</button>`}
    <span>by ${visible(describeOrigin(memory))}</span><${Time} at=${memory.occurred_at ?? memory.created_at} /><a href=${link("memory", memory.id)}>Open</a></div>`;
}

/** @param {{turns: Turn[], memories: Map<string, Memory>, turn: string}} props `turn` is the id of the one to show */
function Transcript({ turns, memories, turn: aimed }) {
  useLayoutEffect(() => {
    if (aimed) document.getElementById(aimed)?.scrollIntoView({ block: "center" });
  }, [aimed]);
  let heading = "";
  return html`<ol class="transcript">${turns.map((turn) => {
    const day = dayHeading(turn.said_at);
    const isNewDay = day !== heading;
    heading = day;
    const learned = (turn.learned ?? []).map((id) => memories.get(id)).filter((each) => each !== undefined);
    return html`${isNewDay && html`<li class="day" key=${`day ${day}`}>${day}</li>`}
      <li class=${`said-and-learned ${turn.role} ${turn.id === aimed ? "aimed" : ""}`} key=${turn.id} id=${turn.id} data-position=${turn.position}>
        <div class="said"><div class="meta"><b>${visible(turn.name ?? (turn.role === "user" ? state.user : turn.role))}</b><span>${clock(turn.said_at)}</span></div><${Text} text=${turn.content} /></div>
        <ul class="learned" aria-label="Learned from this turn">${learned.map(
          (memory) => html`<li key=${memory.id}><a href=${link("memory", memory.id)}><${Text} text=${shorten(memory.memory, 200)} /></a><div class="meta"><${MemoryBadges} memory=${memory} /></div></li>`,
        )}</ul>
      </li>`;
  })}</ol>`;
}

/** @param {{runs: Run[], episodes: Memory[]}} props */
function Runs({ runs, episodes }) {
  return html`<section class="card scroll"><h2>Agent runs</h2><table><thead><tr><th>Goal</th><th>Result</th><th>Outcome</th><th>When</th></tr></thead>
    <tbody>${runs.map((run, at) => {
      const success = episodes.find((each) => run.run_id && each.detail.run_id === run.run_id)?.detail.success;
      return html`<tr key=${run.run_id ?? at}><td><${Text} text=${shorten(run.query, 200)} /></td><td><${Text} text=${shorten(run.result || run.summary, 300)} /></td>
        <td>${typeof success === "boolean" && html`<${Badge} name=${success ? "succeeded" : "failed"} kind=${success ? "key" : "bad"} />`}</td><td><${Time} at=${run.timestamp} /></td></tr>`;
    })}</tbody></table></section>`;
}

/** @param {{scope: {session_id: string, project_id: string}, onClose: () => void}} props */
function EraseDialog({ scope, onClose }) {
  const [receipt, setReceipt] = useState(/** @type {import("../components/memory_actions.js").Receipt | null} */ (null));
  const erase = () => attempt(async () => setReceipt(await post("erase", { target: "session", session_id: scope.session_id, project_id: scope.project_id || undefined })));
  const close = () => {
    onClose();
    if (receipt) location.hash = link("sessions");
  };
  return html`<${Dialog} title=${receipt ? "Erased" : "Erase this session?"} onClose=${close}>
    ${receipt
      ? html`<${ErasureReceipt} receipt=${receipt} />`
      : html`<p>The turns of this session and everything that was learned from them alone are removed from the ledger, the index, caches and the mirror. This cannot be undone.</p>
          <div class="row"><button class="danger" onClick=${erase}>Erase for good</button><button onClick=${onClose}>Keep</button></div>`}
  </${Dialog}>`;
}
