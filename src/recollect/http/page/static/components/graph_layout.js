/** The layout of a graph around one node: a column for each distance, so that labels never overlap. */

/** @typedef {{id: string, kind: string, label: string, distance: number, memory_id: string | null, status: string | null, session_id: string | null, project_id: string | null}} GraphNode */
/** @typedef {{source: string, target: string, kind: string}} GraphEdge */
/** @typedef {GraphNode & {x: number, y: number}} PlacedNode */

export const COLUMN = 300;
export const ROW = 30;
const MARGIN = 24;
const SWEEPS = 6;
const MAX_WIDTH = 230;

/**
 * Place the nodes; those of a column are ordered by the mean position of their neighbours, which keeps edges short.
 * @param {GraphNode[]} nodes @param {GraphEdge[]} edges
 * @returns {{nodes: PlacedNode[], width: number, height: number}}
 */
export function layOut(nodes, edges) {
  /** @type {Map<string, string[]>} */
  const neighbors = new Map(nodes.map((node) => [node.id, []]));
  for (const { source, target } of edges) {
    neighbors.get(source)?.push(target);
    neighbors.get(target)?.push(source);
  }
  /** @type {GraphNode[][]} */
  const columns = [];
  for (const node of nodes) (columns[node.distance] ??= []).push(node);
  for (const column of columns) column?.sort((a, b) => a.kind.localeCompare(b.kind) || a.label.localeCompare(b.label));
  const height = Math.max(...columns.map((column) => column?.length ?? 0), 1) * ROW + 2 * MARGIN;
  /** @type {Map<string, number>} */
  const position = new Map();
  const place = () => {
    for (const column of columns) {
      column?.forEach((node, at) => position.set(node.id, (height - column.length * ROW) / 2 + (at + 0.5) * ROW));
    }
  };
  place();
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    for (const column of columns) {
      const mean = new Map((column ?? []).map((node) => [node.id, meanOf((neighbors.get(node.id) ?? []).map((id) => position.get(id) ?? 0))]));
      column?.sort((a, b) => (mean.get(a.id) ?? 0) - (mean.get(b.id) ?? 0) || a.label.localeCompare(b.label));
    }
    place();
  }
  const placed = nodes.map((node) => ({ ...node, x: MARGIN + node.distance * COLUMN, y: position.get(node.id) ?? 0 }));
  return { nodes: placed, width: columns.length * COLUMN + MARGIN, height };
}

/** @param {GraphNode} node @returns {number} about how wide its label is drawn */
export const widthOf = (node) => Math.min(MAX_WIDTH, node.label.length * 7 + 22);

/** @param {number[]} values */
const meanOf = (values) => (values.length ? values.reduce((sum, each) => sum + each, 0) / values.length : 0);
