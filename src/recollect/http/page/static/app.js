/** The frame of the page: navigation, login, messages, and the view of the address. */

import { html, render, useEffect, useErrorBoundary, useState } from "./vendor/preact.js";
import { Failure } from "./components/basics.js";
import { SampleBanner } from "./components/first_start.js";
import { attempt, dismiss, link, login, logout, lookAt, messageOf, start, state, useRoute, useSession } from "./session.js";

/** Each view is a module in views/ that exports `View`, loaded when it is first opened. @type {{name: string, title: string, icon: string, admin?: boolean}[]} */
const VIEWS = [
  { name: "timeline", title: "Timeline", icon: "M4 6h2m4 0h10M4 12h2m4 0h10M4 18h2m4 0h10" },
  { name: "browse", title: "Browse", icon: "M4 5h16M4 10h16M4 15h10M4 20h7" },
  { name: "why", title: "Why", icon: "M9 9a3 3 0 1 1 4.5 2.6c-1 .6-1.5 1.2-1.5 2.4m0 3.5v.01" },
  { name: "review", title: "Review", icon: "M4 12l5 5L20 6" },
  { name: "sessions", title: "Sessions", icon: "M4 5h16v11H9l-5 4z" },
  { name: "graph", title: "Graph", icon: "M6 7a2 2 0 1 0 .01 0M18 5a2 2 0 1 0 .01 0M17 19a2 2 0 1 0 .01 0M8 8l8 10M8 7l8-1" },
  { name: "playground", title: "Playground", icon: "M7 5l11 7-11 7z" },
  { name: "operations", title: "Operations", icon: "M4 19V9m5 10V5m5 14v-7m5 7V8" },
  { name: "connect", title: "Connect", icon: "M9 7V3m6 4V3M6 7h12v4a6 6 0 0 1-12 0zm6 10v4" },
];
/** @type {Map<string, {View: unknown}>} */
const loaded = new Map();
// Views that are opened from others and not from the navigation.
const HIDDEN_VIEWS = ["memory"];

function App() {
  const { needsLogin, failure, me } = useSession();
  if (needsLogin) return html`<${Login} />`;
  if (failure) return html`<main class="alone"><${Failure} error=${failure} retry=${start} /></main>`;
  if (!me) return html`<p class="loading">Loading…</p>`;
  return html`<${Navigation} /><${Main} /><${Notices} />`;
}

function Navigation() {
  const { view } = useRoute();
  // On small screens the views are a row that scrolls.
  useEffect(() => {
    const item = /** @type {HTMLElement | null} */ (document.querySelector(".navigation [aria-current]")?.parentElement);
    item?.parentElement?.scrollTo({ left: item.offsetLeft - item.parentElement.clientWidth / 2 });
  }, [view]);
  const { user, users, me, live } = useSession();
  return html`<nav class="navigation" aria-label="Views">
    <a class="brand" href=${link("timeline")}><img src="page/icon.svg" alt="" width="26" height="26" /><span>Recollect</span></a>
    ${!me?.user_id && html`<form class="user-choice" onSubmit=${chooseUser}><label for="user">User</label><input id="user" name="user" list="users" key=${user} defaultValue=${user} required autocomplete="off" onChange=${chooseUser} />
      <datalist id="users">${users.map((each) => html`<option value=${each} key=${each}></option>`)}</datalist></form>`}
    <ul>${VIEWS.map(
      (each) => html`<li key=${each.name}><a href=${link(each.name)} aria-current=${view === each.name ? "page" : undefined}>
        <svg viewBox="0 0 24 24" aria-hidden="true"><path d=${each.icon} /></svg><span>${each.title}</span></a></li>`,
    )}</ul>
    <div class="navigation-foot">
      <span class=${`live ${live ? "on" : ""}`} role="status">${live ? "Live" : "Connecting…"}</span>
      <button class="quiet" onClick=${toggleTheme} title="Switch between the light and the dark theme">Theme</button>
      ${me?.by_cookie && html`<button class="quiet" onClick=${() => attempt(logout)}>Log out</button>`}
    </div>
  </nav>`;
}

/** Look at the entered user, who may have no memories yet. @param {Event} event */
function chooseUser(event) {
  event.preventDefault();
  const user = /** @type {HTMLInputElement} */ (document.getElementById("user")).value.trim();
  if (user && user !== state.user) lookAt(user);
}

function Main() {
  const route = useRoute();
  const { user } = useSession();
  const [, setCount] = useState(0);
  const [error, setError] = useState("");
  const [failure, reset] = useErrorBoundary();
  const name = VIEWS.some((each) => each.name === route.view) || HIDDEN_VIEWS.includes(route.view) ? route.view : "timeline";
  useEffect(() => {
    reset();
    setError("");
    document.title = `${VIEWS.find((each) => each.name === name)?.title ?? "Memory"} · Recollect`;
    if (!loaded.has(name)) {
      import(`./views/${name}.js`).then(
        (module) => {
          loaded.set(name, module);
          setCount((count) => count + 1);
        },
        (problem) => setError(messageOf(problem)),
      );
    }
  }, [name]);
  const View = loaded.get(name)?.View;
  return html`<main id="main">
    <${SampleBanner} />
    <${Failure} error=${error || (failure ? messageOf(failure) : "")} retry=${() => location.reload()} />
    ${!failure && View && html`<${View} key=${`${name} ${user}`} route=${route} />`}
  </main>`;
}

function Login() {
  const [error, setError] = useState("");
  /** @param {SubmitEvent} event */
  const submit = async (event) => {
    event.preventDefault();
    const field = /** @type {HTMLInputElement} */ (document.getElementById("key"));
    try {
      await login(field.value.trim());
    } catch (problem) {
      setError(messageOf(problem));
      field.select();
    }
  };
  return html`<main class="alone"><form class="card login" onSubmit=${submit}>
    <h1>Recollect</h1><p>Log in with an API key. <code>recollect keys add</code> creates one.</p>
    <label for="key">API key</label><input id="key" type="password" autocomplete="current-password" required placeholder="rk_…" autofocus />
    <${Failure} error=${error} /><button class="primary">Log in</button>
  </form></main>`;
}

function Notices() {
  const { notices } = useSession();
  return html`<div class="notices" aria-live="polite">${notices.map(
    (each) => html`<div class=${`notice ${each.kind}`} id=${`notice-${each.id}`} key=${each.id}><span>${each.text}</span>
      ${each.undo && html`<button onClick=${() => attempt(async () => { dismiss(each.id); await each.undo?.(); })}>Undo</button>`}
      <button class="quiet" aria-label="Dismiss" onClick=${() => dismiss(each.id)}>✕</button></div>`,
  )}</div>`;
}

function toggleTheme() {
  const dark = document.documentElement.dataset.theme === "dark" || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  setTheme(dark ? "light" : "dark");
}

/** @param {string} theme */
function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  localStorage.setItem("recollect.theme", theme);
}

// Go to a view by "g" and its first letter, and to the search by "/".
let goPressed = 0;
document.addEventListener("keydown", (event) => {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) return;
  if (event.key === "/") {
    event.preventDefault();
    /** @type {HTMLInputElement | null} */ (document.querySelector("main input[type=search]"))?.focus();
  } else if (event.key === "g") goPressed = event.timeStamp;
  else if (goPressed && event.timeStamp - goPressed < 1500) {
    goPressed = 0;
    const found = VIEWS.find((each) => each.name.startsWith(event.key));
    if (found) location.hash = link(found.name);
  }
});

const theme = localStorage.getItem("recollect.theme");
if (theme) setTheme(theme);
window.addEventListener("recollect:login", () => state.me && start());
// The first request is on its way while the page is rendered.
start();
render(html`<${App} />`, /** @type {Element} */ (document.getElementById("app")));
