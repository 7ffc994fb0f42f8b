/** Facets of a list of memories: the values there are, with their counts, as filters in the address. */

import { html, useState } from "../vendor/preact.js";
import { visible } from "../format.js";
import { describeSource } from "../memories.js";
import { setQuery } from "../session.js";

/** @typedef {{value: string, count: number}} FacetValue */
/** @typedef {import("../api.js").Memory} Memory */

const SHOWN = 6;
const monthFormat = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "long", timeZone: "UTC" });

/** @type {{name: string, title: string, none: string, label?: (value: string) => string, hint?: (value: string) => string}[]} */
export const FACETS = [
  { name: "status", title: "Status", none: "" },
  { name: "category", title: "Category", none: "" },
  { name: "project_id", title: "Project", none: "no project" },
  { name: "session_id", title: "Session", none: "no session" },
  { name: "month", title: "Time", none: "", label: (value) => monthFormat.format(new Date(`${value}-01T00:00:00Z`)) },
  { name: "source", title: "Source", none: "no source", hint: describeSource },
  { name: "trust", title: "Trust", none: "" },
  { name: "tags", title: "Tag", none: "" },
];

// The word in the address for the value that stands for "none".
const NONE = "-";
/** @param {URLSearchParams} query @param {string} name @returns {string[]} */
export const chosen = (query, name) => (query.get(name) ?? "").split("|").filter(Boolean).map((value) => (value === NONE ? "" : value));
/** @param {string[]} values */
const join = (values) => values.map((value) => value || NONE).join("|");

/** The filter of the REST API for the choices in the address. @param {URLSearchParams} query @returns {Record<string, unknown>} */
export function filtersOf(query) {
  /** @type {Record<string, unknown>} */
  const filters = {};
  for (const name of ["category", "project_id", "session_id", "source", "trust"]) {
    const values = chosen(query, name);
    if (values.length) filters[name] = values.length === 1 ? values[0] : values;
  }
  const [tags, months] = [chosen(query, "tags"), chosen(query, "month")];
  /** @type {unknown[]} */
  const parts = [];
  if (tags.length) parts.push({ or: tags.map((tag) => ({ tags: tag })) });
  if (months.length) parts.push({ or: months.flatMap(inMonth) });
  if (parts.length) filters.and = parts;
  return filters;
}

/** A memory's month is that of its event, else of its creation. @param {string} month */
function inMonth(month) {
  const start = new Date(`${month}-01T00:00:00Z`);
  const end = new Date(start);
  end.setUTCMonth(end.getUTCMonth() + 1);
  const range = { gte: start.toISOString(), lt: end.toISOString() };
  return [{ occurred_at: range }, { and: [{ created_at: range }, { not: { occurred_at: { gte: "0001-01-01T00:00:00Z" } } }] }];
}

/** @param {URLSearchParams} query @returns {string[]} */
export const statusesOf = (query) => (chosen(query, "status").length ? chosen(query, "status") : ["active"]);

/** Count the facets of search results, which the server does not count. @param {Memory[]} memories @returns {Record<string, FacetValue[]>} */
export function countFacets(memories) {
  /** @type {Record<string, FacetValue[]>} */
  const facets = {};
  for (const { name } of FACETS) {
    /** @type {Map<string, number>} */
    const counts = new Map();
    for (const memory of memories) for (const value of valuesOf(memory, name)) counts.set(value, (counts.get(value) ?? 0) + 1);
    facets[name] = [...counts].map(([value, count]) => ({ value, count })).sort((a, b) => (name === "month" ? b.value.localeCompare(a.value) : b.count - a.count));
  }
  return facets;
}

/** @param {Memory} memory @param {string} name @returns {string[]} */
function valuesOf(memory, name) {
  if (name === "tags") return memory.tags;
  if (name === "month") return [(memory.occurred_at ?? memory.created_at).slice(0, 7)];
  return [String(/** @type {Record<string, unknown>} */ (/** @type {unknown} */ (memory))[name] ?? "")];
}

/** @param {{facets: Record<string, FacetValue[]>, query: URLSearchParams, hidden?: string[]}} props */
export function Facets({ facets, query, hidden = [] }) {
  return html`<div class="facets">${FACETS.filter(({ name }) => !hidden.includes(name)).map(
    (facet) => html`<${Facet} key=${facet.name} facet=${facet} values=${facets[facet.name] ?? []} picked=${chosen(query, facet.name)} />`,
  )}</div>`;
}

/** @param {{facet: (typeof FACETS)[number], values: FacetValue[], picked: string[]}} props */
function Facet({ facet, values, picked }) {
  const [isOpen, setOpen] = useState(false);
  // A picked value stays visible although nothing has it now.
  const all = [...picked.filter((value) => !values.some((each) => each.value === value)).map((value) => ({ value, count: 0 })), ...values];
  if (all.length === 0 || (all.length === 1 && !picked.length && facet.name !== "status")) return null;
  const isShown = (/** @type {FacetValue} */ each, /** @type {number} */ index) => isOpen || index < SHOWN || picked.includes(each.value);
  /** @param {string} value */
  const toggle = (value) => setQuery({ [facet.name]: join(picked.includes(value) ? picked.filter((each) => each !== value) : [...picked, value]) });
  return html`<fieldset class="facet"><legend>${facet.title}</legend>
    ${all.filter(isShown).map((each) => html`<label key=${each.value}>
      <input type="checkbox" checked=${picked.includes(each.value)} onChange=${() => toggle(each.value)} />
      <span class="facet-name" title=${visible(facet.hint?.(each.value) ?? each.value)}>${visible(each.value === "" ? facet.none : facet.label?.(each.value) ?? each.value)}</span>
      <span class="facet-count">${each.count.toLocaleString()}</span></label>`)}
    ${all.length > SHOWN && html`<button class="quiet small" onClick=${() => setOpen(!isOpen)} aria-expanded=${isOpen}>${isOpen ? "Fewer" : `${all.length - SHOWN} more`}</button>`}
  </fieldset>`;
}

/** The choices as chips that go away with a click. @param {{query: URLSearchParams}} props */
export function ChosenFacets({ query }) {
  const picks = FACETS.flatMap((facet) => chosen(query, facet.name).map((value) => ({ facet, value })));
  if (!picks.length) return null;
  return html`<div class="chips">${picks.map(
    ({ facet, value }) => html`<button key=${`${facet.name} ${value}`} class="chip" onClick=${() => setQuery({ [facet.name]: join(chosen(query, facet.name).filter((each) => each !== value)) })}
      aria-label=${`Remove the filter ${facet.title}: ${value}`}>${facet.title}: ${visible(value === "" ? facet.none : facet.label?.(value) ?? value)} ✕</button>`,
  )}<button class="quiet small" onClick=${() => setQuery(Object.fromEntries(FACETS.map((facet) => [facet.name, ""])))}>Clear all</button></div>`;
}
