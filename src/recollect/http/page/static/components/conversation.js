/** The turns that a memory was learned from, in their conversation. */

import { html } from "../vendor/preact.js";
import { get } from "../api.js";
import { visible } from "../format.js";
import { findQuote, useMemories } from "../memories.js";
import { link, state, useLoad } from "../session.js";
import { Failure, Text, Time } from "./basics.js";

/** @typedef {import("../api.js").Memory} Memory */
/** @typedef {import("../api.js").Turn} Turn */
/** @typedef {{session: string, project: string | null, positions: Set<number>}} Place */

const AROUND = 2;
const PAGE_SIZE = 500;

/** @param {{memory: Memory}} props */
export function Evidence({ memory }) {
  const turnOf = useMemories(memory.evidence);
  if (!memory.evidence.length) {
    return html`<p class="soft">It was not learned from a conversation${memory.source ? html`: its source is <strong>${visible(memory.source)}</strong>` : ", but stored directly"}.</p>`;
  }
  const turns = memory.evidence.map((id) => turnOf(id));
  const places = placesOf(/** @type {Memory[]} */ (turns.filter(Boolean)));
  const erased = turns.filter((turn) => turn === null).length;
  return html`${places.map((place) => html`<${Conversation} key=${`${place.project} ${place.session}`} place=${place} memory=${memory.memory} />`)}
    ${erased > 0 && html`<p class="soft small">${erased} of the messages it came from ${erased === 1 ? "was" : "were"} erased for good.</p>`}`;
}

/** @param {Memory[]} turns @returns {Place[]} */
function placesOf(turns) {
  /** @type {Map<string, Place>} */
  const places = new Map();
  for (const turn of turns) {
    const name = `${turn.project_id}\n${turn.session_id}`;
    const place = places.get(name) ?? { session: turn.session_id ?? "", project: turn.project_id, positions: new Set() };
    place.positions.add(Number(turn.detail.position));
    places.set(name, place);
  }
  return [...places.values()];
}

/** @param {{place: Place, memory: string}} props */
function Conversation({ place, memory }) {
  const loaded = useLoad((signal) => fetchAround(place, signal), [place.session, place.project, [...place.positions].join()]);
  const turns = loaded.data ?? [];
  return html`<section class="conversation">
    <p class="meta">${place.session ? html`<span>In session <a href=${link("sessions", place.session, { project: place.project })}><${Text} text=${place.session} /></a></span>` : html`<span>Outside of a session</span>`}
      ${place.project && html`<span>project <${Text} text=${place.project} /></span>`}</p>
    <${Failure} error=${loaded.error} retry=${loaded.reload} />
    <ol>${turns.map((turn, index) => html`<${ConversationTurn} key=${turn.id} turn=${turn} isEvidence=${place.positions.has(turn.position)} memory=${memory}
      hasGap=${index > 0 && turn.position > turns[index - 1].position + 1} />`)}</ol>
  </section>`;
}

/** @param {{turn: Turn, isEvidence: boolean, memory: string, hasGap: boolean}} props */
function ConversationTurn({ turn, isEvidence, memory, hasGap }) {
  const { before, quote, after } = isEvidence ? findQuote(turn.content, memory) : { before: turn.content, quote: "", after: "" };
  return html`<li class=${`turn ${turn.role} ${isEvidence ? "evidence" : ""}`}>
    ${hasGap && html`<p class="gap" aria-label="Messages left out">⋯</p>`}
    <div class="meta"><span class="speaker">${visible(turn.name || (turn.role === "user" ? state.user : turn.role))}</span><${Time} at=${turn.said_at} />${isEvidence && html`<span class="badge key">learned from this</span>`}</div>
    <p class="text" dir="auto">${visible(before)}${quote && html`<mark>${visible(quote)}</mark>`}${visible(after)}</p>
  </li>`;
}

/** The evidence and two turns around each. @param {Place} place @param {AbortSignal} signal @returns {Promise<Turn[]>} */
async function fetchAround(place, signal) {
  const near = (/** @type {number} */ position) => [...place.positions].some((each) => Math.abs(each - position) <= AROUND);
  const end = Math.max(...place.positions) + AROUND;
  /** @type {Turn[]} */
  const turns = [];
  /** @type {string | null} */
  let cursor = null;
  do {
    /** @type {import("../api.js").Page<Turn>} */
    const page = await get("turns", { session_id: place.session, project_id: place.project, limit: PAGE_SIZE, cursor }, signal);
    turns.push(...page.results.filter((turn) => near(turn.position)));
    cursor = (page.results.at(-1)?.position ?? end) < end ? page.cursor : null;
  } while (cursor);
  return turns;
}

