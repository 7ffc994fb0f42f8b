/** The words of a turn that a memory came from. */

import { html } from "../vendor/preact.js";
import { Text, Time } from "./basics.js";
import { shorten, visible } from "../format.js";
import { findQuote } from "../memories.js";
import { link } from "../session.js";

const MAX_AROUND = 90;
const MAX_QUOTE = 600;

/** @param {import("../api.js").Memory} turn @returns {string} who said it */
export function speakerOf(turn) {
  const { role, name } = /** @type {{role?: string, name?: string}} */ (turn.detail);
  return name || (role === "user" ? turn.user_id : role) || "someone";
}

/**
 * @param {{turn: import("../api.js").Memory | null | undefined, memory: string}} props
 * a turn (null: it was erased), and the text of the memory that was learned from it
 */
export function Quote({ turn, memory }) {
  if (turn === undefined) return html`<blockquote class="quote"><p class="soft">…</p></blockquote>`;
  if (turn === null) return html`<blockquote class="quote"><p class="soft">The message it came from was erased.</p></blockquote>`;
  const { before, quote, after } = findQuote(turn.memory, memory);
  const start = before.length > MAX_AROUND ? `…${before.slice(-MAX_AROUND)}` : before;
  return html`<blockquote class="quote" dir="auto">
    <p class="text">${visible(start)}<mark>${shorten(quote.trimEnd(), MAX_QUOTE)}</mark>${after ? ` ${shorten(after, MAX_AROUND)}` : ""}</p>
    <footer class="meta"><span class="speaker">${visible(speakerOf(turn))}</span>
      ${turn.session_id && html`<a href=${link("sessions", turn.session_id, { project: turn.project_id, turn: turn.id })}><${Text} text=${turn.session_id} /></a>`}
      <${Time} at=${turn.created_at} />${turn.status === "forgotten" && html`<span>message forgotten</span>`}</footer>
  </blockquote>`;
}
