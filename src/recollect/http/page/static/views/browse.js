/** All memories: facets, search, sorting, and actions on many at once. */

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/preact.js";
import { post } from "../api.js";
import { fetchAll } from "../bulk.js";
import { plural } from "../format.js";
import { link, messageOf, setQuery, useChanges, useLoad } from "../session.js";
import { Empty, Failure, Heading, MemoryBadges, Text, Time } from "../components/basics.js";
import { ChosenFacets, FACETS, Facets, countFacets, filtersOf, statusesOf } from "../components/facets.js";
import { SelectionBar, useSelection } from "../components/selection.js";
import { VirtualList } from "../components/virtual_list.js";

/** @typedef {import("../api.js").Memory} Memory */

const PAGE_SIZE = 200;
const SEARCH_LIMIT = 200;
const MAX_PROJECTS = 12;
const RELOAD_WAIT_MS = 800;
// Sorted on the page, which needs all memories of the filter; the server sorts by time.
/** @type {Record<string, {title: string, compare?: (a: Memory, b: Memory) => number}>} */
const SORTS = {
  newest: { title: "Newest first" },
  oldest: { title: "Oldest first" },
  importance: { title: "Most important", compare: (a, b) => b.importance - a.importance },
  unsure: { title: "Least sure", compare: (a, b) => a.confidence - b.confidence },
  text: { title: "By text", compare: (a, b) => a.memory.localeCompare(b.memory) },
};

/** @param {{route: import("../session.js").Route}} props */
export function View({ route }) {
  const { query } = route;
  const search = query.get("q") ?? "";
  const sort = query.get("sort") ?? "newest";
  const filterKey = [...query].filter(([name]) => name !== "sort").map((each) => each.join("=")).join("&");
  const listing = useMemo(() => ({ filters: filtersOf(query), statuses: statusesOf(query), order: sort === "oldest" ? "oldest" : "newest" }), [filterKey, sort]);
  const list = useMemoryList(listing, search, sort);
  const counted = useLoad(() => (search ? Promise.resolve(null) : fetchFacets(query)), [listing, search, list.round]);
  const facets = search ? countFacets(list.items) : (counted.data?.facets ?? {});
  const total = search ? list.items.length : (counted.data?.total ?? list.items.length);
  const selection = useSelection(list.items, `${filterKey} ${sort}`);
  const sidebar = html`<${Facets} facets=${facets} query=${query} hidden=${search ? ["status"] : []} />`;
  return html`<${Heading} title="Browse" intro="Everything that is remembered. The address keeps the filters." />
    <div class="browse">
      <aside class="browse-facets" aria-label="Filters">${sidebar}</aside>
      <div class="browse-main">
        <${SearchBar} search=${search} sort=${sort} />
        <details class="facets-small"><summary>Filters</summary>${sidebar}</details>
        <${ChosenFacets} query=${query} />
        <${Failure} error=${list.error} retry=${list.reload} /><${Failure} error=${counted.error} />
        ${selection.isEmpty
          ? html`<div class="list-bar meta"><label><input type="checkbox" checked=${false} disabled=${!list.items.length} onChange=${selection.selectLoaded} /> ${search ? html`Best ${plural(total, "match", "matches")} by words and by meaning` : plural(total, "memory", "memories")}</label>
              ${list.isLoading && html`<span>Loading…</span>`}<span class="list-hint">↑ ↓ move · x select · Enter open</span></div>`
          : html`<${SelectionBar} selection=${selection} items=${list.items} total=${total} listing=${listing} isSearch=${Boolean(search)} />`}
        ${!list.items.length && !list.isLoading && html`<${NothingFound} search=${search} isFiltered=${filterKey !== ""} />`}
        ${list.items.length > 0 && html`<${VirtualList} key=${`${filterKey} ${sort}`} label="Memories" items=${list.items} keyOf=${(/** @type {Memory} */ item) => item.id} estimate=${76} onEnd=${list.loadMore}
          onRowKey=${(/** @type {KeyboardEvent} */ event, /** @type {number} */ index) => onRowKey(event, index, list.items, selection)}
          render=${(/** @type {Memory} */ item, /** @type {number} */ index) => html`<${Row} memory=${item} isSelected=${selection.has(item.id)} onToggle=${(/** @type {boolean} */ isRange) => selection.toggle(index, isRange)} />`} />`}
      </div>
    </div>`;
}

/** @typedef {{total: number, facets: Record<string, {value: string, count: number}[]>}} FacetCounts */

/** Count facets; one with a choice is counted without it, so that another value can be added. @param {URLSearchParams} query @returns {Promise<FacetCounts>} */
async function fetchFacets(query) {
  const count = (/** @type {URLSearchParams} */ of) => post("facets", { filters: filtersOf(of), statuses: statusesOf(of) });
  const picked = FACETS.map((facet) => facet.name).filter((name) => name !== "status" && query.get(name));
  const others = picked.map((name) => count(new URLSearchParams([...query].filter(([each]) => each !== name))));
  const [counted, ...rest] = /** @type {FacetCounts[]} */ (await Promise.all([count(query), ...others]));
  picked.forEach((name, index) => (counted.facets[name] = rest[index].facets[name]));
  return counted;
}

/** @param {KeyboardEvent} event @param {number} index @param {Memory[]} items @param {ReturnType<typeof useSelection>} selection */
function onRowKey(event, index, items, selection) {
  const isRow = /** @type {HTMLElement} */ (event.target).hasAttribute("data-key");
  if (event.shiftKey && event.key.startsWith("Arrow")) selection.toggle(index, true);
  else if (event.key === "x" || (event.key === " " && isRow)) {
    event.preventDefault();
    selection.toggle(index, event.shiftKey);
  } else if (event.key === "Enter" && isRow) location.hash = link("memory", items[index].id);
  else if (event.key === "Escape") selection.clear();
}

/** @param {{search: string, sort: string}} props */
function SearchBar({ search, sort }) {
  const timer = useRef(0);
  const [text, setText] = useState(search);
  // Another address was opened; what is being typed is not replaced.
  useLayoutEffect(() => {
    if (!timer.current && search !== text.trim()) setText(search);
  }, [search]);
  /** @param {Event} event */
  const onInput = (event) => {
    const { value } = /** @type {HTMLInputElement} */ (event.target);
    setText(value);
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => {
      timer.current = 0;
      setQuery({ q: value.trim() });
    }, 250);
  };
  return html`<form class="search-bar" role="search" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
    <label class="search-field"><span class="visually-hidden">Search</span><input type="search" placeholder="Search by words or by meaning: “what can the trip cost”" value=${text} onInput=${onInput} /></label>
    ${!search && html`<label class="row"><span class="soft small">Sort</span><select value=${sort} onChange=${(/** @type {Event} */ event) => setQuery({ sort: /** @type {HTMLSelectElement} */ (event.target).value })}>
      ${Object.entries(SORTS).map(([name, each]) => html`<option key=${name} value=${name}>${each.title}</option>`)}</select></label>`}
  </form>`;
}

/** @param {{memory: Memory & {score?: number}, isSelected: boolean, onToggle: (isRange: boolean) => void}} props */
function Row({ memory, isSelected, onToggle }) {
  return html`<div class=${`browse-row ${isSelected ? "selected" : ""}`}>
    <input type="checkbox" tabindex="-1" checked=${isSelected} aria-label="Select" onClick=${(/** @type {MouseEvent} */ event) => onToggle(event.shiftKey)} />
    <div class="browse-text"><a class="memory-text" tabindex="-1" href=${link("memory", memory.id)}><${Text} text=${memory.memory} /></a>
      <div class="meta"><${MemoryBadges} memory=${memory} />${memory.tags.map((tag) => html`<span key=${tag}>#<${Text} text=${tag} /></span>`)}
        ${memory.project_id && html`<span>in <${Text} text=${memory.project_id} /></span>`}<${Time} at=${memory.created_at} />
        ${memory.score !== undefined && html`<span title="How well it matches, from 0 to 1">match ${memory.score.toFixed(2)}</span>`}</div></div>
  </div>`;
}

/** @param {{search: string, isFiltered: boolean}} props */
function NothingFound({ search, isFiltered }) {
  if (search) {
    return html`<${Empty} title="Nothing matches"><p>The search looks for the same words and for the same meaning among active memories. Try fewer or other words, or remove a filter.</p><button onClick=${() => setQuery({ q: "" })}>Clear the search</button></${Empty}>`;
  }
  if (isFiltered) return html`<${Empty} title="No memory has all of this"><p>Remove one of the filters above to see more.</p></${Empty}>`;
  return html`<${Empty} title="Nothing is remembered yet"><p>Memories come from conversations: <a href=${link("connect")}>connect an assistant</a>, or look around with sample data on the <a href=${link("timeline")}>timeline</a>.</p></${Empty}>`;
}

/**
 * The memories of a listing, page by page; of a search, the best matches.
 * @param {{filters: Record<string, unknown>, statuses: string[], order: string}} listing @param {string} search @param {string} sort
 */
function useMemoryList(listing, search, sort) {
  const [list, setList] = useState({ items: /** @type {Memory[]} */ ([]), cursor: /** @type {string | null} */ (null), isLoading: true, error: "" });
  const [round, setRound] = useState(0);
  const request = useRef(0);
  const compare = SORTS[sort]?.compare;
  /** @param {string | null} cursor @param {Memory[]} before */
  const load = async (cursor, before) => {
    const number = ++request.current;
    setList((now) => ({ ...now, isLoading: true }));
    try {
      const page = await fetchPage(listing, search, compare, cursor, Math.max(PAGE_SIZE, cursor ? 0 : Math.min(before.length, 1000)));
      if (number === request.current) setList({ items: cursor ? [...before, ...page.results] : page.results, cursor: page.cursor, isLoading: false, error: "" });
    } catch (error) {
      if (number === request.current) setList((now) => ({ ...now, isLoading: false, error: messageOf(error) }));
    }
  };
  useEffect(() => {
    load(null, []);
  }, [listing, search, sort]);
  // Many changes at once lead to one reload, which keeps what is shown until the new list is there.
  const timer = useRef(0);
  useChanges(() => {
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => {
      setRound((count) => count + 1);
      load(null, list.items);
    }, RELOAD_WAIT_MS);
  }, [listing, search, sort, list.items]);
  useEffect(() => () => clearTimeout(timer.current), []);
  return { ...list, round, reload: () => load(null, []), loadMore: () => list.cursor && !list.isLoading && load(list.cursor, list.items) };
}

/**
 * @param {Record<string, unknown>} listing @param {string} search @param {((a: Memory, b: Memory) => number) | undefined} compare @param {string | null} cursor @param {number} limit
 * @returns {Promise<{results: Memory[], cursor: string | null}>}
 */
async function fetchPage(listing, search, compare, cursor, limit) {
  if (search) return { results: await searchEverywhere(search, listing), cursor: null };
  if (compare) return { results: (await fetchAll(listing)).sort(compare), cursor: null };
  return post("list", { ...listing, limit, cursor });
}

/**
 * A search looks into one project and what all projects share, so there is one for each project.
 * @param {string} query @param {Record<string, unknown>} listing @returns {Promise<Memory[]>}
 */
async function searchEverywhere(query, listing) {
  const filters = { and: [listing.filters, { not: { category: "turn" } }] };
  const { facets } = /** @type {FacetCounts} */ (await post("facets", { filters: listing.filters, statuses: listing.statuses }));
  /** @type {(string | null)[]} */
  const projects = [null, ...facets.project_id.map((each) => each.value).filter(Boolean).slice(0, MAX_PROJECTS)];
  const answers = await Promise.all(projects.map((project) => post("search", { query, filters, limit: SEARCH_LIMIT }, { project_id: project })));
  /** @type {Map<string, Memory & {score: number}>} */
  const best = new Map();
  for (const hit of answers.flatMap((answer) => answer.results)) if (hit.score > (best.get(hit.id)?.score ?? -1)) best.set(hit.id, hit);
  return [...best.values()].sort((a, b) => b.score - a.score).slice(0, SEARCH_LIMIT);
}
