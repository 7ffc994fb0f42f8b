/** One memory: what it says, where it came from, what it replaced, and what may be done with it. */

import { html, useState } from "../vendor/preact.js";
import { get, patch, post } from "../api.js";
import { day, percent, plural, visible } from "../format.js";
import { describeOrigin, undoOfNewest } from "../memories.js";
import { attempt, link, notify, state, useChanges, useLoad } from "../session.js";
import { Badge, Empty, Failure, Heading, MemoryBadges, Text, Time } from "../components/basics.js";
import { Evidence } from "../components/conversation.js";
import { AsOf, Chain, Versions, fetchChain, useHistory } from "../components/lifetime.js";
import { EditDialog, EraseDialog, ErasureReceipt, ForgetDialog } from "../components/memory_actions.js";

/** @typedef {import("../api.js").Memory} Memory */
/** @typedef {import("../components/memory_actions.js").Receipt} Receipt */

/** @param {{route: import("../session.js").Route}} props */
export function View({ route }) {
  const [receipt, setReceipt] = useState(/** @type {Receipt | null} */ (null));
  const loaded = useLoad((signal) => get(`memories/${encodeURIComponent(route.id)}`, {}, signal).then((data) => /** @type {Memory} */ (data)), [route.id]);
  useChanges((change) => {
    if (change.data.memory_id === route.id) loaded.reload();
  }, [route.id]);
  const memory = loaded.data;
  if (receipt) return html`<${Heading} title="Erased" intro="The memory is gone for good." actions=${html`<a class="button" href=${link("timeline")}>To the timeline</a>`} /><${ErasureReceipt} receipt=${receipt} />`;
  if (!memory && loaded.error) {
    return html`<${Heading} title="Memory" /><${Empty} title="There is no such memory"><p>${loaded.error}</p><p>It may have been erased, or belong to another user than <strong>${visible(state.user)}</strong>.</p><a class="button" href=${link("browse")}>Browse all memories</a></${Empty}>`;
  }
  if (!memory) return html`<p class="loading">Loading…</p>`;
  return html`<${MemoryPage} key=${memory.id} memory=${memory} reload=${loaded.reload} onErased=${setReceipt} />`;
}

/** @param {{memory: Memory, reload: () => void, onErased: (receipt: Receipt) => void}} props */
function MemoryPage({ memory, reload, onErased }) {
  const history = useHistory({ memory, reloadWhen: memory.version });
  const chain = useLoad((signal) => fetchChain(memory, signal), [memory.id, memory.version]);
  const isTurn = memory.category === "turn";
  return html`<${Heading} title=${isTurn ? "Message" : "Memory"} actions=${html`<${Actions} memory=${memory} changes=${history.data?.length ?? 0} reload=${reload} onErased=${onErased} />`} />
    <div class="columns memory-page"><div class="stack">
      <section class="card memory-main"><${MemoryBadges} memory=${memory} /><p class=${`memory-full ${memory.status === "active" ? "" : "inactive"}`}><${Text} text=${memory.memory} /></p>
        ${memory.superseded_by && html`<p class="small">It no longer holds: <a href=${link("memory", memory.superseded_by)}>see what replaced it</a>.</p>`}
        ${memory.status === "forgotten" && html`<p class="small soft">It was forgotten and is not recalled.</p>`}
        ${memory.status === "review" && html`<p class="small">It waits for review and is not recalled. <a href=${link("review", memory.id)}>Decide now</a></p>`}
        <${Tags} memory=${memory} reload=${reload} /></section>
      ${!isTurn && html`<section class="card stack"><h2>Where it comes from</h2><${Evidence} memory=${memory} /></section>`}
      <section class="card stack"><h2>History <span class="soft small">${history.data ? plural(history.data.length, "change") : ""}</span></h2><${Failure} error=${history.error} retry=${history.reload} />${history.data && html`<${Versions} history=${history.data} />`}</section>
    </div><div class="stack">
      <section class="card stack"><h2>What held when</h2><${Failure} error=${chain.error} />
        ${chain.data && html`<${Chain} chain=${chain.data} memory=${memory} />`}
        ${chain.data && history.data && html`<${AsOf} chain=${chain.data} history=${history.data} />`}</section>
      <section class="card"><h2>Details</h2><${Details} memory=${memory} /></section>
    </div></div>`;
}

/** @param {{memory: Memory, changes: number, reload: () => void, onErased: (receipt: Receipt) => void}} props */
function Actions({ memory, changes, reload, onErased }) {
  const [dialog, setDialog] = useState("");
  const close = () => setDialog("");
  const restore = () =>
    attempt(async () => {
      await post(`memories/${memory.id}/restore`);
      reload();
      notify("Restored: it is recalled again.", { undo: await undoOfNewest(memory.id) });
    });
  const isGone = memory.status === "forgotten" || memory.status === "superseded";
  const writes = state.me?.write !== false;
  return html`<a class="button" href=${link("why", "", { memory: memory.id })}>Why was it (not) recalled?</a><a class="button" href=${link("graph", memory.id)}>Graph</a>
    ${writes && html`<button onClick=${() => setDialog("edit")}>Edit</button>
      ${isGone ? html`<button onClick=${restore}>Restore</button>` : html`<button onClick=${() => setDialog("forget")}>Forget</button>`}
      <button class="danger" onClick=${() => setDialog("erase")}>Erase…</button>`}
    ${dialog === "edit" && html`<${EditDialog} memory=${memory} path=${`${memory.status === "review" ? "reviews" : "memories"}/${memory.id}`} onClose=${close} onSaved=${reload} />`}
    ${dialog === "forget" && html`<${ForgetDialog} memory=${memory} onClose=${close} onDone=${reload} />`}
    ${dialog === "erase" && html`<${EraseDialog} memory=${memory} changes=${changes} onClose=${close} onErased=${onErased} />`}`;
}

/** @param {{memory: Memory, reload: () => void}} props */
function Tags({ memory, reload }) {
  const [text, setText] = useState("");
  /** @param {string[]} tags */
  const save = (tags) =>
    attempt(async () => {
      await patch(`memories/${memory.id}`, { tags }, { "If-Match": `"${memory.version}"` });
      reload();
    });
  /** @param {Event} event */
  const add = (event) => {
    event.preventDefault();
    const tag = text.trim();
    setText("");
    if (tag && !memory.tags.includes(tag)) save([...memory.tags, tag]);
  };
  const writes = state.me?.write !== false;
  return html`<form class="tags" onSubmit=${add}>${memory.tags.map((tag) => html`<span class="badge" key=${tag}><a href=${link("browse", "", { tags: tag })}>#${visible(tag)}</a>
      ${writes && html`<button type="button" class="quiet" aria-label=${`Remove the tag ${tag}`} onClick=${() => save(memory.tags.filter((each) => each !== tag))}>✕</button>`}</span>`)}
    ${writes && html`<label><span class="visually-hidden">Add a tag</span><input value=${text} size="10" maxlength="200" placeholder="add a tag" onInput=${(/** @type {Event} */ event) => setText(/** @type {HTMLInputElement} */ (event.target).value)} /></label>`}</form>`;
}

/** @param {{memory: Memory}} props */
function Details({ memory }) {
  /** @type {[string, unknown][]} */
  const rows = [
    ["Key", memory.key && html`<a href=${link("graph", memory.key)}>${visible(memory.key)}</a>`],
    ["Value", memory.value && html`<${Text} text=${memory.value} />`],
    ["Confidence", percent(memory.confidence)],
    ["Importance", percent(memory.importance)],
    ["Trust", `${memory.trust}${TRUST[memory.trust] ? `: ${TRUST[memory.trust]}` : ""}`],
    ["Learned by", visible(describeOrigin(memory))],
    ["Project", memory.project_id && html`<a href=${link("browse", "", { project_id: memory.project_id })}><${Text} text=${memory.project_id} /></a>`],
    ["Session", memory.session_id && html`<a href=${link("sessions", memory.session_id, { project: memory.project_id })}><${Text} text=${memory.session_id} /></a>`],
    ["Said", html`<${Time} at=${memory.created_at} />`],
    ["Happened", memory.occurred_at && day(memory.occurred_at)],
    ["Valid from", memory.valid_from && html`<${Time} at=${memory.valid_from} />`],
    ["Valid to", memory.valid_to && html`<${Time} at=${memory.valid_to} />`],
    ["Expires", memory.expires_at && html`<${Time} at=${memory.expires_at} />`],
    ["Last change", memory.updated_at !== memory.created_at && html`<${Time} at=${memory.updated_at} />`],
    ["Doubts", Array.isArray(memory.detail.unverified) && memory.detail.unverified.map((each) => html`<${Badge} key=${each} name=${String(each)} kind="warn" />`)],
    ["Id", html`<code class="id">${memory.id}</code>`],
  ];
  return html`<dl class="details">${rows.filter(([, value]) => value).map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
}

/** @type {Record<string, string>} */
const TRUST = { high: "the user's own words", low: "not the user's own words", none: "a third party's words" };
