/** API keys: list, create, revoke. */

import { html, useState } from "../vendor/preact.js";
import { del, get, post } from "../api.js";
import { Badge, Dialog, Failure, Time } from "./basics.js";
import { CopyBlock } from "./copy.js";
import { visible } from "../format.js";
import { attempt, login, notify, state, useLoad } from "../session.js";

/** Create a key; on a server that had none, log in with it at once, because from now on it is needed. @param {Record<string, unknown>} fields */
export async function createKey(fields) {
  const created = await post("admin/keys", fields);
  if (state.me?.kind === "local" && fields.admin) await login(created.key);
  return created;
}

export function Keys() {
  const { data, error, reload } = useLoad(() => get("admin/keys"), []);
  const [creates, setCreates] = useState(false);
  const [revokes, setRevokes] = useState(/** @type {any} */ (null));
  const revoke = () => attempt(async () => {
    await del(`admin/keys/${revokes.id}`);
    notify(`The key ${revokes.name} no longer works.`);
    setRevokes(null);
    reload();
  });
  return html`<div class="row"><button class="primary" onClick=${() => setCreates(true)}>New key</button>
      ${data && !data.results.length && html`<span class="soft">There is no key: everyone on this machine has access. The first key ends that, so create an admin key first.</span>`}</div>
    <${Failure} error=${error} retry=${reload} />
    ${data?.results.length > 0 && html`<div class="scroll"><table><thead><tr><th>Name</th><th>For</th><th>May</th><th>Created</th><th>Last used</th><th><span class="visually-hidden">Actions</span></th></tr></thead>
      <tbody>${data.results.map((/** @type {any} */ key) => html`<tr key=${key.id}>
        <td>${visible(key.name)}${key.revoked_at && html` <${Badge} name="revoked" kind="bad" />`}${key.expires_at && html` <span class="small soft">until <${Time} at=${key.expires_at} /></span>`}</td>
        <td>${key.admin ? "administration" : visible(key.user_id ?? "every user")}${key.project_id && html` <${Badge} name=${key.project_id} />`}</td>
        <td class="small">${[key.read && "read", key.write && "write"].filter(Boolean).join(", ")}</td><td class="small"><${Time} at=${key.created_at} /></td><td class="small">${key.last_used_at ? html`<${Time} at=${key.last_used_at} />` : "never"}</td>
        <td>${!key.revoked_at && html`<button class="danger" onClick=${() => setRevokes(key)}>Revoke</button>`}</td></tr>`)}</tbody></table></div>`}
    ${creates && html`<${NewKey} onClose=${() => { setCreates(false); reload(); }} isFirst=${!data?.results.length} />`}
    ${revokes && html`<${Dialog} title="Revoke this key?" onClose=${() => setRevokes(null)}><p>Programs that use <b>${visible(revokes.name)}</b> lose access within five seconds. This cannot be undone.</p>
      <div class="row"><button class="danger" onClick=${revoke}>Revoke</button><button onClick=${() => setRevokes(null)}>Keep</button></div></${Dialog}>`}`;
}

/** @param {{onClose: () => void, isFirst: boolean}} props */
function NewKey({ onClose, isFirst }) {
  const [created, setCreated] = useState(/** @type {any} */ (null));
  const [kind, setKind] = useState(isFirst ? "admin" : "user");
  /** @param {SubmitEvent} event */
  const submit = (event) => {
    event.preventDefault();
    const form = Object.fromEntries(new FormData(/** @type {HTMLFormElement} */ (event.target)));
    const expires = Number(form.days) ? new Date(Date.now() + Number(form.days) * 86_400_000).toISOString() : undefined;
    const whom = kind === "admin" ? { admin: true } : kind === "everyone" ? { everyone: true } : { for_user: form.user };
    attempt(async () => setCreated(await createKey({ ...whom, name: form.name || undefined, project_id: form.project || undefined, write: form.readonly ? false : undefined, expires_at: expires })));
  };
  return html`<${Dialog} title=${created ? "Your new key" : "New key"} onClose=${onClose}>
    ${created
      ? html`<p>It is shown once. Copy it now.</p><${CopyBlock} text=${created.key} label="key" />`
      : html`<form class="stack" onSubmit=${submit}>
          <label>Access to <select value=${kind} onChange=${(/** @type {Event} */ event) => setKind(/** @type {HTMLSelectElement} */ (event.target).value)}>
            <option value="user">one user</option><option value="everyone">every user (an application)</option><option value="admin">everything (admin)</option></select></label>
          ${kind === "user" && html`<label>User <input name="user" required defaultValue=${state.user} /></label>`}
          <label>Name <input name="name" placeholder="laptop" /></label>
          ${kind !== "admin" && html`<label>Project <input name="project" placeholder="all" /></label><label class="row"><input type="checkbox" name="readonly" /> read only</label>`}
          <label>Valid for days <input name="days" type="number" min="1" max="3650" placeholder="no end" /></label>
          <div class="row"><button class="primary">Create</button></div></form>`}
  </${Dialog}>`;
}
