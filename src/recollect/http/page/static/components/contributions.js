/** Why a candidate got its relevance: the contribution of each group of features as bars. */

import { html } from "../vendor/preact.js";
import { Bar } from "./basics.js";

/** @typedef {{feature: string, value: number, weight: number, log_odds: number}} Contribution */

/** Groups of features in plain words; the first that matches a name counts. @type {[string, RegExp][]} */
const GROUPS = [
  ["Words matched one by one", /^late/],
  ["Neighbouring turns", /^(previous|next|reply)/],
  ["The same session", /^session_/],
  ["Instruction or preference", /^(instruction|preference)/],
  ["Time and numbers", /^(has_time|has_number|in_period)/],
  ["Who said it", /^(speaker|by_assistant|first_person)/],
  ["Similar in meaning", /^semantic/],
  ["Shared words", /^(lexical|coverage)/],
  ["Length and form", /./],
];

/** @param {string} name @returns {string} */
const groupOf = (name) => GROUPS.find(([, pattern]) => pattern.test(name))?.[0] ?? name;

/** @param {Contribution[]} contributions @returns {[string, number, Contribution[]][]} groups with their sum, strongest first */
export function groupContributions(contributions) {
  /** @type {Map<string, Contribution[]>} */
  const groups = new Map();
  for (const each of contributions) {
    const name = groupOf(each.feature);
    groups.set(name, [...(groups.get(name) ?? []), each]);
  }
  return [...groups]
    .map(([name, parts]) => /** @type {[string, number, Contribution[]]} */ ([name, parts.reduce((sum, part) => sum + part.log_odds, 0), parts]))
    .filter(([, sum]) => Math.abs(sum) >= 0.01)
    .sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
}

/** @param {number} value */
const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;

/** @param {{logOdds: {base: number, question: number, total: number, contributions: Contribution[]}}} props */
export function Contributions({ logOdds }) {
  const groups = groupContributions(logOdds.contributions);
  const largest = Math.max(1, ...groups.map(([, sum]) => Math.abs(sum)));
  return html`<div class="contributions">
    <p class="small soft">Each bar adds to (right) or takes from (left) the log-odds that this memory answers. Start: ${signed(logOdds.base + logOdds.question)} for this question; sum: ${signed(logOdds.total)}.</p>
    ${groups.map(
      ([name, sum, parts]) => html`<details key=${name}>
        <summary><span class="contribution-name">${name}</span><${Bar} value=${sum / largest} signed label=${`${name} ${signed(sum)}`} /><span class="mono small">${signed(sum)}</span></summary>
        <table class="small"><thead><tr><th>Feature</th><th class="number">Value</th><th class="number">Weight</th><th class="number">Adds</th></tr></thead>
          <tbody>${parts.map((part) => html`<tr key=${part.feature}><td><code>${part.feature}</code></td><td class="number">${part.value.toFixed(3)}</td><td class="number">${part.weight.toFixed(3)}</td><td class="number">${signed(part.log_odds)}</td></tr>`)}</tbody></table>
      </details>`,
    )}
  </div>`;
}
