/** Connect: what to paste into a client so that it uses this server. */

import { html, useState } from "../vendor/preact.js";
import { post } from "../api.js";
import { Failure, Heading } from "../components/basics.js";
import { CopyBlock } from "../components/copy.js";
import { createKey } from "../components/keys.js";
import { plural, visible } from "../format.js";
import { attempt, messageOf, setQuery, state } from "../session.js";
import { GROUPS, SNIPPETS } from "./connect_snippets.js";

const PROBE = "recollect-connection-test";

/** @param {{route: import("../session.js").Route}} props */
export function View({ route }) {
  const [key, setKey] = useState("");
  const chosen = SNIPPETS.find((each) => each.name === route.query.get("client")) ?? SNIPPETS[0];
  const base = new URL(".", document.baseURI).href.replace(/[#?].*$/, "").replace(/\/$/, "");
  const needsKey = state.me?.server.needs_keys ?? false;
  const shownKey = key || (needsKey ? "rk_YOUR_KEY" : "not-needed");
  const create = () => attempt(async () => setKey((await createKey({ for_user: state.user, name: `${chosen.name} ${new Date().toISOString().slice(0, 10)}` })).key));
  return html`<${Heading} title="Connect" intro="Choose what you use; paste; done. The snippets already have this server's address." />
    <div class="columns connect">
      <div class="stack">
        <div class="clients">${Object.entries(GROUPS).map(([group, title]) => html`<div key=${group} role="group" aria-label=${title}><h2>${title}</h2><div class="segments">${SNIPPETS.filter((each) => each.group === group).map(
          (each) => html`<button key=${each.name} aria-pressed=${each === chosen} onClick=${() => setQuery({ client: each.name })}>${each.title}</button>`,
        )}</div></div>`)}</div>
      </div>
      <div class="stack">
        <section class="card"><h2>Key</h2>
          ${needsKey ? html`<p>This server asks for a key.</p>` : html`<p>This server has no keys: programs on this machine need none. The first key changes that for everyone.</p>`}
          ${key ? html`<p>It is shown once and is in the snippet already.</p><${CopyBlock} text=${key} label="key" />` : (state.me?.admin || state.me?.kind === "local") && html`<button onClick=${create}>Create a key for ${visible(state.user)}</button>`}</section>
        <${Test} />
      </div>
    </div>
    <section class="card snippet"><h2>${chosen.title}</h2><p class="soft">${chosen.intro}</p>
      ${chosen.install && html`<${CopyBlock} text=${chosen.install} label="installation" />`}
      <${CopyBlock} text=${chosen.code({ base, key: shownKey, user: state.user })} label="snippet" /></section>`;
}

function Test() {
  const [result, setResult] = useState(/** @type {{text: string, error: string} | null} */ (null));
  const test = async () => {
    setResult({ text: "…", error: "" });
    try {
      const started = performance.now();
      const scope = { session_id: PROBE };
      await post("remember", { messages: [{ role: "user", content: "This is a test of the connection. My favourite test colour is teal." }] }, scope);
      const recall = await post("recall", { messages: "What is my favourite test colour?" }, scope);
      await post("erase", { target: "session", ...scope });
      const found = recall.context.text.includes("teal");
      setResult({ text: `${found ? "It works" : "It answers, but did not find what it was just told"}: one message stored, ${plural(recall.context.used.length, "memory", "memories")} recalled and the test removed in ${Math.round(performance.now() - started)} ms.`, error: "" });
    } catch (error) {
      setResult({ text: "", error: messageOf(error) });
    }
  };
  return html`<section class="card"><h2>Test it</h2><p class="soft">Stores a message, recalls it, and removes it again.</p><button class="primary" onClick=${test}>Test</button>
    <div aria-live="polite">${result && (result.error ? html`<${Failure} error=${result.error} />` : html`<p>${result.text}</p>`)}</div></section>`;
}
