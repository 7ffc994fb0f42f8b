/** Operations: jobs, usage, health, backups, keys, audit and settings of the server. */

import { html, useState } from "../vendor/preact.js";
import { get, post } from "../api.js";
import { Badge, Bar, Empty, Failure, Heading, Text, Time } from "../components/basics.js";
import { Keys } from "../components/keys.js";
import { plural, shorten, visible } from "../format.js";
import { attempt, link, notify, state, useLoad } from "../session.js";

/** @type {[string, string, any, boolean][]} name, title, component, for administrators only */
const TABS = [
  ["jobs", "Jobs", Jobs, false],
  ["usage", "Usage", UsageTab, false],
  ["health", "Health", Health, true],
  ["backups", "Backups", Backups, true],
  ["keys", "Keys", Keys, true],
  ["audit", "Audit", Audit, true],
  ["settings", "Settings", SettingsTab, true],
];

/** @param {{route: import("../session.js").Route}} props */
export function View({ route }) {
  const chosen = TABS.find(([name]) => name === (route.query.get("tab") ?? "jobs")) ?? TABS[0];
  const [name, , Tab, adminOnly] = chosen;
  return html`<${Heading} title="Operations" intro="What the server does in the background, what it costs, and how it is." />
    <nav class="tabs" aria-label="Parts">${TABS.map(([each, title]) => html`<a key=${each} href=${link("operations", "", { tab: each })} aria-current=${each === name ? "page" : undefined}>${title}</a>`)}</nav>
    ${adminOnly && !state.me?.admin && state.me?.kind !== "local"
      ? html`<${Empty} title="For administrators"><p>This part is shown to holders of an admin key: <code>recollect keys add --admin</code></p></${Empty}>`
      : html`<${Tab} />`}`;
}

/** The states of jobs and their names. @type {Record<string, string>} */
const JOB_STATES = { waiting: "waiting", running: "running", done: "done", dead: "failed", cancelled: "cancelled" };

function Jobs() {
  const [only, setOnly] = useState("");
  const { data, error, reload } = useLoad(() => get("jobs", { limit: 100, state: only }), [only]);
  /** @param {any} job @param {string} action @param {string} text */
  const act = (job, action, text) => attempt(async () => {
    await post(`jobs/${job.id}/${action}`);
    notify(text);
    reload();
  });
  return html`<div class="segments" role="group" aria-label="State">${Object.entries({ "": "all", ...JOB_STATES }).map(([each, title]) => html`<button key=${each} aria-pressed=${only === each} onClick=${() => setOnly(each)}>${title}</button>`)}
      <button class="quiet" onClick=${reload}>Refresh</button></div>
    <${Failure} error=${error} retry=${reload} />
    ${data && !data.results.length && html`<${Empty} title="No jobs"><p>Learning, summaries and upkeep run as jobs and are listed here.</p></${Empty}>`}
    ${data?.results.length > 0 && html`<div class="scroll"><table><thead><tr><th>Job</th><th>State</th><th>Result</th><th>When</th><th><span class="visually-hidden">Actions</span></th></tr></thead>
      <tbody>${data.results.map((/** @type {any} */ job) => html`<tr key=${job.id}>
        <td>${job.kind}${job.session_id && html` <a class="small" href=${link("sessions", job.session_id, { project: job.project_id })}>${shorten(job.session_id, 24)}</a>`}</td>
        <td><${Badge} name=${JOB_STATES[job.state] ?? job.state} kind=${job.state === "dead" ? "bad" : job.state === "done" ? "" : "warn"} />${job.tries > 1 && html` <span class="small soft">${job.tries} tries</span>`}</td>
        <td class="small"><${JobResult} job=${job} /></td><td class="small"><${Time} at=${job.updated_at} /></td>
        <td>${(job.state === "dead" || job.state === "cancelled") && html`<button onClick=${() => act(job, "replay", "The job runs again.")}>Retry</button>`}${job.state === "waiting" && html`<button onClick=${() => act(job, "cancel", "The job is cancelled.")}>Cancel</button>`}</td></tr>`)}</tbody></table></div>`}`;
}

/** @param {{job: any}} props */
function JobResult({ job }) {
  if (job.error) return html`<span class="failure-text"><${Text} text=${shorten(job.error, 300)} /></span>`;
  const decisions = [...(job.result?.decisions ?? []), ...(job.result?.dropped ?? []).map((/** @type {unknown} */ each) => `not kept: ${typeof each === "string" ? each : JSON.stringify(each)}`)];
  return decisions.length ? html`<ul class="plain">${decisions.slice(0, 6).map((each) => html`<li><${Text} text=${shorten(each, 200)} /></li>`)}</ul>` : visible(job.result?.reason ?? "");
}

function UsageTab() {
  const isAdmin = state.me?.admin || state.me?.kind === "local";
  const since = new Date(Date.now() - 29 * 86_400_000).toISOString();
  const days = useLoad(() => get(isAdmin ? "admin/usage" : "usage", { since, part: "day" }), []);
  const users = useLoad(() => (isAdmin ? get("admin/usage", { since, part: "user" }) : Promise.resolve({ results: [] })), []);
  const rows = days.data?.results ?? [];
  /** @param {any} row */
  const tokens = (row) => row.tokens_in + row.tokens_out;
  const largest = Math.max(1, ...rows.map(tokens));
  return html`<${Failure} error=${days.error} retry=${days.reload} />
    ${days.data && html`<p>Today: ${plural(days.data.today.calls, "LLM call")}, ${days.data.today.tokens.toLocaleString()} tokens. ${visible(state.me?.server.learning ?? "")}</p>`}
    ${days.data && !rows.length && html`<${Empty} title="No LLM was used in 30 days"><p>The tokens that learning costs are counted here by day and user.</p></${Empty}>`}
    ${rows.length > 0 && html`<section class="card"><h2>Tokens by day</h2><table class="small"><tbody>${rows.map((/** @type {any} */ row) => html`<tr key=${row.day}><td>${row.day}</td><td class="wide"><${Bar} value=${tokens(row) / largest} label=${`${tokens(row)} tokens`} /></td><td class="number">${tokens(row).toLocaleString()}</td><td class="number">${plural(row.calls, "call")}</td></tr>`)}</tbody></table></section>`}
    ${users.data?.results.length > 0 && html`<section class="card"><h2>By user</h2><table class="small"><tbody>${users.data?.results.map((/** @type {any} */ row) => html`<tr key=${row.user_id}><td><${Text} text=${row.user_id} /></td><td class="number">${tokens(row).toLocaleString()} tokens</td><td class="number">${plural(row.calls, "call")}</td></tr>`)}</tbody></table></section>`}`;
}

function Health() {
  const { data, error, reload } = useLoad(() => get("admin/health"), []);
  return html`<${Failure} error=${error} retry=${reload} />
    ${data && html`<ul class="plain">${data.checks.map((/** @type {any} */ check) => html`<li class="memory-line" key=${check.name}>
        <div class="row"><${Badge} name=${check.state} kind=${check.state === "fail" ? "bad" : check.state === "warn" ? "warn" : "key"} /><b>${check.name}</b><span>${visible(check.message)}</span></div>
        ${check.mend && html`<p class="small soft">${visible(check.mend)}</p>`}</li>`)}</ul>
      ${data.models?.length > 0 && html`<section class="card"><h2>Embedding models</h2>${data.models.map((/** @type {any} */ model) => html`<div key=${model.model} class="row"><b>${visible(model.model)}</b><span class="soft">${visible(model.state ?? "")}</span><span class="wide"><${Bar} value=${model.total ? model.done / model.total : 1} label=${`${model.done} of ${model.total}`} /></span><span class="small">${model.total ? `${model.done.toLocaleString()} of ${model.total.toLocaleString()}` : "nothing left to embed"}</span></div>`)}</section>`}`}`;
}

function Backups() {
  const { data, error, reload } = useLoad(() => get("admin/backups"), []);
  const [isBusy, setBusy] = useState(false);
  const make = async () => {
    setBusy(true);
    await attempt(async () => {
      const made = await post("admin/backups");
      notify(`Backed up to ${made.file}`);
      reload();
    });
    setBusy(false);
  };
  return html`<div class="row"><button class="primary" onClick=${make} disabled=${isBusy}>${isBusy ? "Backing up…" : "Back up now"}</button>
      <span class="soft small">Everything of all users, in one file on the server. <code>recollect backup restore FILE</code> brings it back.</span></div>
    <${Failure} error=${error} retry=${reload} />
    ${data && !data.results.length && html`<${Empty} title="No backup was made yet"><p>A backup is made while the server is in use, and holds all that was stored before.</p></${Empty}>`}
    ${data?.results.length > 0 && html`<div class="scroll"><table><thead><tr><th>Made</th><th>File</th><th class="number">Size</th><th class="number">Memories</th></tr></thead><tbody>${data.results.map((/** @type {any} */ each) => html`<tr key=${each.digest}>
      <td><${Time} at=${each.made_at} /></td><td class="mono small">${visible(each.file)}${!each.exists && html` <${Badge} name="gone" kind="warn" />`}</td><td class="number">${Math.ceil(each.bytes / 1024).toLocaleString()} KB</td><td class="number">${(each.rows.memories ?? 0).toLocaleString()}</td></tr>`)}</tbody></table></div>`}`;
}

function Audit() {
  const { data, error, reload } = useLoad(() => get("admin/audit", { limit: 200 }), []);
  return html`<p class="soft">Who looked at whose memories on this page.</p><${Failure} error=${error} retry=${reload} />
    ${data && !data.results.length && html`<${Empty} title="Nobody looked at another user's memories" />`}
    ${data?.results.length > 0 && html`<table><thead><tr><th>When</th><th>Who</th><th>User</th><th>What</th></tr></thead><tbody>${data.results.map((/** @type {any} */ each, /** @type {number} */ at) => html`<tr key=${at}><td><${Time} at=${each.at} /></td><td>${visible(each.who)}</td><td>${visible(each.user_id)}</td><td class="mono small">${visible(each.route)}</td></tr>`)}</tbody></table>`}`;
}

function SettingsTab() {
  const { data, error, reload } = useLoad(() => get("admin/settings"), []);
  const [text, setText] = useState("");
  const rows = (data?.results ?? []).filter((/** @type {any} */ each) => `${each.name} ${each.description}`.toLowerCase().includes(text.toLowerCase()));
  return html`<${Failure} error=${error} retry=${reload} />
    <label class="row">Find <input type="search" value=${text} onInput=${(/** @type {Event} */ event) => setText(/** @type {HTMLInputElement} */ (event.target).value)} /></label>
    ${data && html`<div class="scroll"><table><thead><tr><th>Setting</th><th>Value</th><th>From</th></tr></thead><tbody>${rows.map((/** @type {any} */ each) => html`<tr key=${each.name}>
      <td><code>${each.name}</code><div class="small soft">${visible(each.description)}</div></td>
      <td class="mono small">${each.value === "" ? html`<span class="soft">empty</span>` : visible(each.value)}${each.value !== each.default && html`<div class="soft">default ${visible(each.default) || "empty"}</div>`}</td>
      <td class="small">${visible(each.source ?? (each.value === each.default ? "default" : "set"))}</td></tr>`)}</tbody></table></div>`}`;
}
