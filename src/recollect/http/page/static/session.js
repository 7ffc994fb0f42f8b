/** What the whole page shares: who looks at whom, the address of the view, messages, and the stream of changes. */

import { useEffect, useLayoutEffect, useState } from "./vendor/preact.js";
import { ApiError, actAsPerson, followChanges, get, post, showUser } from "./api.js";

/** @typedef {{kind: string, name: string, user_id: string | null, project_id: string | null, admin: boolean, read: boolean, write: boolean, acts_as_person: boolean, by_cookie: boolean, default_user: string, server: {version: string, learning: string, llm: string | null, upstream: boolean, chat_model: string | null, needs_keys: boolean, base_path: string}}} Me */
/** @typedef {{id: number, text: string, kind: "ok" | "error", undo?: () => Promise<unknown>}} Notice */
/** @typedef {{name: string, data: any}} Change */

/** @type {{me: Me | null, user: string, users: string[], needsLogin: boolean, live: boolean, notices: Notice[], failure: string}} */
export const state = { me: null, user: "", users: [], needsLogin: false, live: false, notices: [], failure: "" };
/** @type {Set<() => void>} */
const listeners = new Set();
/** @type {Set<(change: Change) => void>} */
const changeListeners = new Set();
let endStream = () => {};
let noticeNumber = 0;

/** @param {Partial<typeof state>} parts */
export function set(parts) {
  Object.assign(state, parts);
  for (const listener of listeners) listener();
}

/** Render again when the shared state changes. The effects that listen run at once: others run later, and would miss a fast answer. */
export function useSession() {
  const [, refresh] = useState(0);
  useLayoutEffect(() => {
    const listener = () => refresh((count) => count + 1);
    listeners.add(listener);
    return () => {
      listeners.delete(listener);
    };
  }, []);
  return state;
}

/** Call back for each change of the shown user's memories. @param {(change: Change) => void} listener @param {unknown[]} inputs */
export function useChanges(listener, inputs = []) {
  useLayoutEffect(() => {
    changeListeners.add(listener);
    return () => {
      changeListeners.delete(listener);
    };
  }, inputs);
}

/** Find out who is logged in and whom they may look at; called at the start and after a login. */
export async function start() {
  try {
    const me = /** @type {Me} */ (await get("me"));
    actAsPerson(me.acts_as_person);
    const users = me.user_id ? [me.user_id] : (await get("admin/users", { limit: 200 }).catch(() => ({ results: [] }))).results;
    const wanted = localStorage.getItem("recollect.user") ?? me.default_user;
    set({ me, users, needsLogin: false, failure: "" });
    lookAt(me.user_id ?? (users.includes(wanted) ? wanted : users[0] ?? me.default_user));
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) set({ needsLogin: true, me: null });
    else set({ failure: messageOf(error) });
  }
}

/** @param {string} user */
export function lookAt(user) {
  showUser(state.me?.user_id ? "" : user);
  localStorage.setItem("recollect.user", user);
  endStream();
  set({ user, live: false });
  endStream = followChanges(
    (change) => {
      for (const listener of changeListeners) listener(change);
    },
    (live) => set({ live }),
  );
}

/** @param {string} key */
export async function login(key) {
  await post("login", { key });
  await start();
}

export async function logout() {
  endStream();
  await post("logout");
  set({ me: null, needsLogin: true, live: false });
}

/** @param {unknown} error @returns {string} */
export const messageOf = (error) => (error instanceof Error ? error.message : String(error));

/**
 * Show a message at the bottom for a while; with `undo`, a button that takes the action back.
 * @param {string} text @param {{kind?: "ok" | "error", undo?: () => Promise<unknown>}} [options]
 */
export function notify(text, options = {}) {
  const notice = { id: ++noticeNumber, text, kind: options.kind ?? "ok", undo: options.undo };
  set({ notices: [...state.notices.slice(-3), notice] });
  dismissAfter(notice.id, options.undo ? 12_000 : 6_000);
}

/** Dismiss a message, but not while a person is at it. @param {number} id @param {number} ms */
function dismissAfter(id, ms) {
  setTimeout(() => (document.querySelector(`#notice-${id}:is(:hover, :focus-within)`) ? dismissAfter(id, 2_000) : dismiss(id)), ms);
}

/** @param {number} id */
export function dismiss(id) {
  set({ notices: state.notices.filter((each) => each.id !== id) });
}

/**
 * Run an action of the person; errors become a message instead of an exception.
 * @template T @param {() => Promise<T>} action @returns {Promise<T | undefined>}
 */
export async function attempt(action) {
  try {
    return await action();
  } catch (error) {
    notify(messageOf(error), { kind: "error" });
    return undefined;
  }
}

/** @typedef {{view: string, id: string, query: URLSearchParams}} Route */

/** @returns {Route} of an address such as #/memory/ID?tab=history */
export function currentRoute() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [view, ...rest] = path.split("/");
  return { view: view || "timeline", id: rest.map(decodeURIComponent).join("/"), query: new URLSearchParams(query) };
}

/** @returns {Route} */
export function useRoute() {
  const [route, setRoute] = useState(currentRoute);
  useLayoutEffect(() => {
    const listener = () => setRoute(currentRoute());
    window.addEventListener("hashchange", listener);
    return () => window.removeEventListener("hashchange", listener);
  }, []);
  return route;
}

/**
 * The address of a view. @param {string} view @param {string} [id] @param {Record<string, unknown>} [query]
 */
export function link(view, id = "", query = {}) {
  const parts = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const search = new URLSearchParams(parts.map(([name, value]) => [name, String(value)])).toString();
  return `#/${view}${id ? `/${encodeURIComponent(id)}` : ""}${search ? `?${search}` : ""}`;
}

/** Change parts of the query of the present view without a new entry in the browser's history. @param {Record<string, unknown>} parts */
export function setQuery(parts) {
  const route = currentRoute();
  const query = Object.fromEntries(route.query);
  history.replaceState(null, "", link(route.view, route.id, { ...query, ...parts }));
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}

/**
 * Load data for a view: {data, error, loading, reload}. What is shown stays until the new data is there.
 * @template T @param {(signal: AbortSignal) => Promise<T>} fetcher @param {unknown[]} inputs
 */
export function useLoad(fetcher, inputs) {
  const [round, setRound] = useState(0);
  const [result, setResult] = useState(/** @type {{data: T | undefined, error: string, loading: boolean}} */ ({ data: undefined, error: "", loading: true }));
  useEffect(() => {
    const controller = new AbortController();
    setResult((before) => ({ ...before, loading: true }));
    fetcher(controller.signal).then(
      (data) => {
        if (!controller.signal.aborted) setResult({ data, error: "", loading: false });
      },
      (error) => {
        if (!controller.signal.aborted) setResult((before) => ({ data: before.data, error: messageOf(error), loading: false }));
      },
    );
    return () => controller.abort();
  }, [...inputs, round]);
  return { ...result, reload: () => setRound((count) => count + 1) };
}
