/** Sessions: transcripts with what was learned from each turn. */

import { html, useState } from "../vendor/preact.js";
import { get, post } from "../api.js";
import { Badge, Dialog, Empty, Failure, Heading, MemoryBadges, Text, Time } from "../components/basics.js";
import { clock, dayHeading, plural, shorten, visible } from "../format.js";
import { attempt, link, notify, useLoad } from "../session.js";

const PAGE = 100;
// A transcript longer than this is cut; the REST API has the rest.
const MAX_TURNS = 5000;

/** @param {{route: import("../session.js").Route}} props */
export function View({ route }) {
  return route.id ? html`<${Session} key=${route.id} id=${route.id} project=${route.query.get("project") ?? ""} />` : html`<${SessionList} />`;
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

/** @param {{id: string, project: string}} props */
function Session({ id, project }) {
  const scope = { session_id: id, project_id: project };
  const { data, error, reload } = useLoad(() => loadSession(scope), [id, project]);
  const [confirms, setConfirms] = useState(false);
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
      ${data.session.summary && html`<section class="card"><h2>Summary</h2><p><${Text} text=${data.session.summary} /></p></section>`}
      ${data.session.invocations.length > 0 && html`<${Runs} runs=${data.session.invocations} />`}
      <${Transcript} turns=${data.turns} memories=${data.memories} />
    </div>`}
    ${confirms && html`<${EraseDialog} scope=${scope} onClose=${() => setConfirms(false)} />`}`;
}

/** @param {{session_id: string, project_id: string}} scope */
async function loadSession(scope) {
  const session = await get("session", scope);
  /** @type {import("../api.js").Turn[]} */
  const turns = [];
  let cursor = null;
  do {
    const page = /** @type {import("../api.js").Page<import("../api.js").Turn>} */ (await get("turns", { ...scope, limit: 1000, cursor }));
    turns.push(...page.results);
    cursor = page.cursor;
  } while (cursor && turns.length < MAX_TURNS);
  const ids = [...new Set(turns.flatMap((turn) => turn.learned ?? []))];
  /** @type {Map<string, import("../api.js").Memory>} */
  const memories = new Map();
  for (let at = 0; at < ids.length; at += 100) {
    const page = await post("list", { filters: { id: { in: ids.slice(at, at + 100) } }, statuses: ["active", "superseded", "forgotten", "review"], limit: 100 });
    for (const each of page.results) memories.set(each.id, each);
  }
  return { session, turns, memories };
}

/** @param {{turns: import("../api.js").Turn[], memories: Map<string, import("../api.js").Memory>}} props */
function Transcript({ turns, memories }) {
  let heading = "";
  return html`<ol class="transcript">${turns.map((turn) => {
    const day = dayHeading(turn.said_at);
    const isNewDay = day !== heading;
    heading = day;
    const learned = (turn.learned ?? []).map((id) => memories.get(id)).filter((each) => each !== undefined);
    return html`${isNewDay && html`<li class="day" key=${`day ${day}`}>${day}</li>`}
      <li class=${`said-and-learned ${turn.role}`} key=${turn.id} id=${turn.id}>
        <div class="said"><div class="meta"><b>${visible(turn.name ?? turn.role)}</b><span>${clock(turn.said_at)}</span></div><${Text} text=${turn.content} /></div>
        <ul class="learned" aria-label="Learned from this turn">${learned.map(
          (memory) => html`<li key=${memory.id}><a href=${link("memory", memory.id)}><${Text} text=${shorten(memory.memory, 200)} /></a><div class="meta"><${MemoryBadges} memory=${memory} /></div></li>`,
        )}</ul>
      </li>`;
  })}</ol>`;
}

/** @param {{runs: any[]}} props */
function Runs({ runs }) {
  return html`<section class="card scroll"><h2>Agent runs</h2><table><thead><tr><th>Run</th><th>State</th><th>When</th></tr></thead>
    <tbody>${runs.map((run, at) => html`<tr key=${run.id ?? at}><td><${Text} text=${shorten(run.goal ?? run.id ?? JSON.stringify(run), 160)} /></td><td>${visible(run.state ?? run.status ?? "")}</td><td><${Time} at=${run.started_at ?? run.at} /></td></tr>`)}</tbody></table></section>`;
}

/** @param {{scope: {session_id: string, project_id: string}, onClose: () => void}} props */
function EraseDialog({ scope, onClose }) {
  const [receipt, setReceipt] = useState(/** @type {any} */ (null));
  const erase = () => attempt(async () => setReceipt(await post("erase", { target: "session", session_id: scope.session_id, project_id: scope.project_id || undefined })));
  const close = () => {
    onClose();
    if (receipt) location.hash = link("sessions");
  };
  return html`<${Dialog} title=${receipt ? "Erased" : "Erase this session?"} onClose=${close}>
    ${receipt
      ? html`<pre>${visible(JSON.stringify(receipt, null, 2))}</pre>`
      : html`<p>The turns of this session and everything that was learned from them alone are removed from the ledger, the index, caches and the mirror. This cannot be undone.</p>
          <div class="row"><button class="danger" onClick=${erase}>Erase for good</button><button onClick=${onClose}>Keep</button></div>`}
  </${Dialog}>`;
}
