/** Graph: names, keys and sessions around one memory or name. */

import { html, useMemo, useState } from "../vendor/preact.js";
import { get, post } from "../api.js";
import { Empty, Failure, Heading } from "../components/basics.js";
import { layOut, widthOf } from "../components/graph_layout.js";
import { plural, shorten, visible } from "../format.js";
import { link, setQuery, useLoad } from "../session.js";

/** @typedef {import("../components/graph_layout.js").GraphNode} GraphNode */
/** @typedef {import("../components/graph_layout.js").GraphEdge} GraphEdge */
/** @typedef {{nodes: GraphNode[], edges: GraphEdge[], truncated: boolean}} Graph */

const MAX_NODES = 200;
/** Edges in words. @type {Record<string, string>} */
const EDGES = { mentions: "mentions", same_key: "has the key", said_in: "was said in", superseded_by: "replaced by" };

/** @param {{route: import("../session.js").Route}} props */
export function View({ route }) {
  const around = route.id || route.query.get("around") || "";
  const depth = route.query.get("depth") === "1" ? 1 : 2;
  const superseded = route.query.get("past") === "1";
  const { data, error, reload } = useLoad(
    async (signal) => (around ? /** @type {Graph} */ (await get("graph", { around, depth, limit: MAX_NODES, superseded }, signal)) : null),
    [around, depth, superseded],
  );
  return html`<${Heading} title="Graph" intro="What is connected with one name, key or memory. Choose any node to look at it from there." />
    <${Search} around=${around} depth=${depth} superseded=${superseded} />
    <${Failure} error=${error} retry=${reload} />
    ${!around && html`<${Suggestions} />`}
    ${around && data && !data.nodes.length && html`<${Empty} title="Nothing mentions this"><p>No memory mentions “${visible(around)}”. Names are found as they are written.</p></${Empty}>`}
    ${data && data.nodes.length > 0 && html`<${Drawing} graph=${data} />`}`;
}

/** @param {{around: string, depth: number, superseded: boolean}} props */
function Search({ around, depth, superseded }) {
  /** @param {SubmitEvent} event */
  const submit = (event) => {
    event.preventDefault();
    const value = String(new FormData(/** @type {HTMLFormElement} */ (event.target)).get("around") ?? "").trim();
    if (value) location.hash = link("graph", value, { depth, past: superseded ? 1 : "" });
  };
  return html`<form class="row why-form" role="search" onSubmit=${submit}>
    <label class="visually-hidden" for="around">Name, key or id of a memory</label>
    <input id="around" type="search" name="around" key=${around} defaultValue=${around} placeholder="A name, such as Berlin" required /><button class="primary">Show</button>
    <button type="button" aria-pressed=${depth === 2} onClick=${() => setQuery({ depth: depth === 2 ? 1 : 2 })}>Two steps</button>
    <button type="button" aria-pressed=${superseded} onClick=${() => setQuery({ past: superseded ? "" : 1 })}>With the past</button>
  </form>`;
}

/** The keys and the names that many memories mention. */
function Suggestions() {
  const { data } = useLoad(() => post("list", { limit: 300 }), []);
  const names = useMemo(() => frequentNames(data?.results ?? []), [data]);
  if (!data) return null;
  if (!names.length) return html`<${Empty} title="Nothing to connect yet"><p>Names, keys and sessions appear here with the first memories.</p></${Empty}>`;
  return html`<section class="card"><h2>Start with</h2><p class="row">${names.map((name) => html`<a class="button" key=${name} href=${link("graph", name)}>${visible(name)}</a>`)}</p></section>`;
}

/** @param {import("../api.js").Memory[]} memories @returns {string[]} */
function frequentNames(memories) {
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const memory of memories) {
    const names = [...memory.memory.matchAll(/(?<=[\p{L}\p{N},;] )\p{Lu}[\p{L}\p{N}'-]{2,}(?: \p{Lu}[\p{L}'-]+)*/gu)].map((match) => match[0]);
    for (const name of new Set([...names, ...(memory.key ? [memory.key] : [])])) counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  return [...counts].sort((a, b) => b[1] - a[1]).slice(0, 24).map(([name]) => name);
}

/** @param {{graph: Graph}} props */
function Drawing({ graph }) {
  const kinds = [...new Set(graph.edges.map((edge) => edge.kind))];
  const [hidden, setHidden] = useState(/** @type {string[]} */ ([]));
  const edges = graph.edges.filter((edge) => !hidden.includes(edge.kind));
  const connected = new Set(edges.flatMap((edge) => [edge.source, edge.target]));
  const nodes = graph.nodes.filter((node) => node.distance === 0 || connected.has(node.id));
  const { nodes: placed, width, height } = useMemo(() => layOut(nodes, edges), [graph, hidden.join()]);
  const byId = new Map(placed.map((node) => [node.id, node]));
  /** @param {string} kind */
  const toggle = (kind) => setHidden(hidden.includes(kind) ? hidden.filter((each) => each !== kind) : [...hidden, kind]);
  return html`<div class="row graph-legend" role="group" aria-label="Kinds of edges">
      ${kinds.map((kind) => html`<button key=${kind} class=${`edge-${kind}`} aria-pressed=${!hidden.includes(kind)} onClick=${() => toggle(kind)}>${EDGES[kind] ?? kind}</button>`)}
      <span class="small soft">${plural(placed.length, "node")}${graph.truncated ? "; there are more, look closer at one of them" : ""}</span></div>
    <div class="graph card" tabindex="0" role="region" aria-label="Graph">
      <svg viewBox=${`0 0 ${width} ${height}`} width=${width} height=${height} aria-hidden="true">
        ${edges.map((edge) => html`<${Edge} key=${`${edge.source} ${edge.target} ${edge.kind}`} from=${byId.get(edge.source)} to=${byId.get(edge.target)} kind=${edge.kind} />`)}
      </svg>
      <ul class="graph-nodes" ref=${(/** @type {HTMLElement | null} */ element) => { if (element) { element.style.width = `${width}px`; element.style.height = `${height}px`; } }}>
        ${placed.map((node) => html`<li key=${node.id} ref=${(/** @type {HTMLElement | null} */ element) => { if (element) element.style.transform = `translate(${node.x}px, ${node.y}px)`; }}><${Node} node=${node} /></li>`)}
      </ul>
    </div>`;
}

/** @typedef {import("../components/graph_layout.js").PlacedNode} PlacedNode */
/** @param {{from?: PlacedNode, to?: PlacedNode, kind: string}} props */
function Edge({ from, to, kind }) {
  if (!from || !to) return null;
  const [left, right] = from.x <= to.x ? [from, to] : [to, from];
  const [x1, x2] = left.x === right.x ? [left.x, right.x] : [left.x + widthOf(left), right.x];
  const bend = left.x === right.x ? -40 : (x2 - x1) / 2;
  return html`<path class=${`edge edge-${kind}`} d=${`M${x1} ${left.y} C${x1 + bend} ${left.y} ${x2 - (left.x === right.x ? 40 : bend)} ${right.y} ${x2} ${right.y}`} />`;
}

/** @param {{node: GraphNode}} props */
function Node({ node }) {
  const label = shorten(node.label, 40);
  const past = node.status && node.status !== "active" ? " past" : "";
  const centre = node.distance === 0 ? " centre" : "";
  const target = node.kind === "session" ? link("sessions", node.session_id ?? node.label, { project: node.project_id }) : link("graph", node.memory_id ?? node.label);
  return html`<a class=${`node node-${node.kind}${past}${centre}`} href=${node.kind === "memory" && centre ? link("memory", node.memory_id ?? "") : target} title=${visible(node.label)}>
    <span class="visually-hidden">${node.kind}: </span>${label}</a>`;
}
