/** Requests to the REST API. The page uses nothing else. */

/** @typedef {{id: string, memory: string, user_id: string, project_id: string | null, session_id: string | null, type: string, category: string, created_at: string, updated_at: string, key: string | null, value: string | null, importance: number, confidence: number, source: string, trust: string, occurred_at: string | null, valid_from: string | null, valid_to: string | null, expires_at: string | null, superseded_by: string | null, status: string, version: number, evidence: string[], tags: string[], metadata: Record<string, unknown>, detail: Record<string, unknown>}} Memory */
/** @typedef {{id: number, memory_id: string, verb: string, at: string, who: string, why: string, version: number, before: Record<string, unknown> | null, after: Record<string, unknown>, undoes: number | null, batch: string, actor: "person" | "agent"}} HistoryEntry */
/** @typedef {{id: string, session_id: string, role: string, name: string | null, content: string, said_at: string, position: number, learned?: string[]}} Turn */
/** @template T @typedef {{results: T[], cursor: string | null}} Page */

export class ApiError extends Error {
  /** @param {number} status @param {string} code @param {string} message */
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** Routes that are about the caller or the server, and take no user. */
const WITHOUT_USER = /^(admin\/|login$|logout$|me$)/;
/** The user whose memories are shown; empty if the credentials already say who. */
let shownUser = "";
/** @param {string} user */
export function showUser(user) {
  shownUser = user;
}

/**
 * @param {string} path below /recollect/v1/, or an absolute path below the server's base such as "/v1/chat/completions"
 * @param {Record<string, unknown>} [query]
 * @returns {URL}
 */
export function address(path, query = {}) {
  const relative = path.startsWith("/") ? path.slice(1) : `recollect/v1/${path}`;
  const url = new URL(relative, document.baseURI);
  url.hash = "";
  if (shownUser && !WITHOUT_USER.test(path)) url.searchParams.set("user_id", shownUser);
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, String(value));
  }
  return url;
}

/** Headers of every request: the page's own mark against forged requests, and that a person acts; the history names it. @type {Record<string, string>} */
const pageHeaders = { "X-Recollect-Page": "1", "X-Memory-By": "web page" };
/** @param {boolean} allowed whether these credentials may act as a person */
export function actAsPerson(allowed) {
  if (allowed) pageHeaders["X-Memory-Actor"] = "person";
  else delete pageHeaders["X-Memory-Actor"];
}

/**
 * @param {string} method
 * @param {string} path
 * @param {{query?: Record<string, unknown>, body?: unknown, headers?: Record<string, string>, signal?: AbortSignal}} [options]
 * @returns {Promise<any>}
 */
export async function request(method, path, options = {}) {
  /** @type {Record<string, string>} */
  const headers = { ...pageHeaders, ...options.headers };
  if (options.body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(address(path, options.query), {
      method,
      headers,
      body: options.body === undefined ? undefined : JSON.stringify(options.body),
      signal: options.signal,
      credentials: "same-origin",
      cache: "no-store",
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "Unreachable", "The server does not answer. Is `recollect serve` still running?");
  }
  const text = await response.text();
  /** @type {any} */
  let data = null;
  try {
    data = text ? JSON.parse(text) : null;
  } catch {
    data = null;
  }
  if (!response.ok) {
    const error = data?.error ?? {};
    if (response.status === 401) window.dispatchEvent(new Event("recollect:login"));
    throw new ApiError(response.status, error.code ?? "Error", error.message ?? `The server answered ${response.status}.`);
  }
  return data;
}

/** @param {string} path @param {Record<string, unknown>} [query] @param {AbortSignal} [signal] */
export const get = (path, query, signal) => request("GET", path, { query, signal });
/** @param {string} path @param {unknown} [body] @param {Record<string, unknown>} [query] */
export const post = (path, body = {}, query) => request("POST", path, { body, query });
/** @param {string} path @param {unknown} body @param {Record<string, string>} [headers] */
export const patch = (path, body, headers) => request("PATCH", path, { body, headers });
/** @param {string} path @param {Record<string, unknown>} [query] */
export const del = (path, query) => request("DELETE", path, { query });

/**
 * Follow the stream of changes; returns a function that ends it. The browser reconnects by itself.
 * @param {(event: {name: string, data: any}) => void} onChange
 * @param {(connected: boolean) => void} onState
 */
export function followChanges(onChange, onState) {
  const source = new EventSource(address("changes"));
  const names = ["add", "update", "supersede", "forget", "restore", "undo", "erased"];
  for (const name of names) {
    source.addEventListener(name, (event) => onChange({ name, data: JSON.parse(/** @type {MessageEvent} */ (event).data) }));
  }
  source.onopen = () => onState(true);
  source.onerror = () => onState(false);
  return () => source.close();
}
