/** The first start: what happens here, how to connect, and sample data that goes away with one click. */

import { html, useEffect, useState } from "../vendor/preact.js";
import { del, post } from "../api.js";
import { plural } from "../format.js";
import { attempt, link, notify, set, state, useChanges, useSession } from "../session.js";

const SAMPLE_PROJECT = "sample";

/** @returns {Promise<boolean>} whether the shown user has the sample data */
async function hasSample() {
  const { results } = await post("list", { filters: { project_id: SAMPLE_PROJECT }, turns: true, limit: 1 });
  return results.length > 0;
}

async function removeSample() {
  await attempt(async () => {
    const { erased } = await del("sample");
    notify(`Sample data removed: ${plural(erased, "record")} erased.`);
  });
}

/** A strip above every view while sample data is there. */
export function SampleBanner() {
  const { user } = useSession();
  const [isThere, setThere] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const check = () => void hasSample().then(setThere, () => setThere(false));
  useEffect(check, [user]);
  useChanges((change) => {
    const { memory_id: id } = change.data;
    if (change.name === "erased" || (!isThere && id && change.name === "add")) checkSoon(check);
  }, [user, isThere]);
  if (!isThere) return null;
  const remove = async () => {
    setBusy(true);
    await removeSample();
    setBusy(false);
    check();
  };
  return html`<aside class="sample-banner" aria-label="Sample data"><span>You are looking at sample data, kept in the project <strong>sample</strong>. It is never mixed into other projects.</span>
    <button onClick=${remove} disabled=${isBusy}>Remove it</button></aside>`;
}

let checkTimer = 0;
/** Many changes at once lead to one check. @param {() => void} check */
function checkSoon(check) {
  clearTimeout(checkTimer);
  checkTimer = window.setTimeout(check, 400);
}

/** What an empty timeline says. @param {{onSample: () => void}} props */
export function Welcome({ onSample }) {
  const [isBusy, setBusy] = useState(false);
  const addSample = async () => {
    setBusy(true);
    const added = await attempt(() => post("sample"));
    setBusy(false);
    if (!added) return;
    notify(`${plural(added.added, "sample memory", "sample memories")} added.`);
    set({});
    onSample();
  };
  const base = new URL(".", document.baseURI).href;
  return html`<section class="welcome card">
    <h2>Nothing has been remembered ${state.user === state.me?.default_user ? "" : `for ${state.user} `}yet</h2>
    <p>Recollect reads along in the conversations of your assistant and keeps what will matter later: facts, preferences, decisions, instructions. Everything it learns appears here the moment it is learned, beside the words it came from, and one click takes it back.</p>
    <ol class="steps">
      <li><strong>Connect your assistant.</strong> Point any OpenAI-compatible client at this server: <code>OPENAI_BASE_URL=${base}v1</code><br /><a href=${link("connect")}>Ready-made settings for your client</a></li>
      <li><strong>Talk to it</strong> as you always do. What it learns shows up on this page.</li>
      <li><strong>Ask it later.</strong> The matching memories go into the prompt; <a href=${link("why")}>Why</a> shows which ones, and why.</li>
    </ol>
    ${state.me?.write !== false && html`<p class="row"><button class="primary" onClick=${addSample} disabled=${isBusy}>${isBusy ? "Adding…" : "Look around with sample data"}</button>
      <span class="small soft">A few conversations of an invented person, removable with one click.</span></p>`}
  </section>`;
}
