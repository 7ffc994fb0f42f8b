/** Playground: chat with the configured model, and see beside each answer what was recalled and what was learned. */

import { html, useEffect, useRef, useState } from "../vendor/preact.js";
import { address, get } from "../api.js";
import { Badge, Failure, Heading, MemoryBadges, Text } from "../components/basics.js";
import { plural, shorten, visible } from "../format.js";
import { link, messageOf, state, useChanges } from "../session.js";

/** @typedef {{number: number, question: string, answer: string, error: string, status: string, hits: number, recalled: any[] | null, learned: import("../api.js").Memory[], done: boolean}} Exchange */

/** @returns {string} */
const newSession = () => `playground-${new Date().toISOString().slice(0, 19).replace(/[:T]/g, "-")}`;

export function View() {
  const [session, setSession] = useState(newSession);
  const [exchanges, setExchanges] = useState(/** @type {Exchange[]} */ ([]));
  const [mode, setMode] = useState("on");
  const [busy, setBusy] = useState(false);
  const end = useRef(/** @type {HTMLElement | null} */ (null));
  /** @param {number} number @param {Partial<Exchange> | ((before: Exchange) => Partial<Exchange>)} parts */
  const change = (number, parts) => setExchanges((before) => before.map((each) => (each.number === number ? { ...each, ...(typeof parts === "function" ? parts(each) : parts) } : each)));
  useChanges(({ name, data }) => {
    if (name !== "add" && name !== "supersede") return;
    get(`memories/${data.memory_id}`).then((memory) => {
      const last = exchanges.at(-1);
      if (last && memory.category !== "turn" && memory.status === "active" && memory.session_id === session) {
        change(last.number, (each) => ({ learned: [...each.learned.filter((other) => other.id !== memory.id), memory] }));
      }
    }, () => {});
  }, [exchanges.length, session]);
  useEffect(() => end.current?.scrollIntoView({ block: "nearest" }), [exchanges]);

  /** @param {SubmitEvent} event */
  const send = async (event) => {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.target);
    const question = String(new FormData(form).get("message") ?? "").trim();
    if (!question || busy) return;
    form.reset();
    const number = exchanges.length;
    setExchanges([...exchanges, { number, question, answer: "", error: "", status: "", hits: 0, recalled: null, learned: [], done: false }]);
    setBusy(true);
    const history = exchanges.flatMap((each) => [{ role: "user", content: each.question }, { role: "assistant", content: each.answer }]);
    try {
      const found = await chat([...history, { role: "user", content: question }], session, mode, (text) => change(number, (each) => ({ answer: each.answer + text })));
      change(number, { ...found, done: true });
    } catch (error) {
      change(number, { error: messageOf(error), done: true });
    }
    setBusy(false);
    const recalls = await get("recalls", { limit: 5 }).catch(() => ({ results: [] }));
    const own = recalls.results.find((/** @type {any} */ each) => each.question === question);
    const recalled = own ? await get(`recalls/${own.id}`).catch(() => null) : null;
    // With several server processes, another one may have the recall.
    if (recalled) change(number, { hits: 0 });
    change(number, { recalled: recalled?.results.filter((/** @type {any} */ each) => recalled.context.used.includes(each.id) && isSource(each)) ?? [] });
  };
  return html`<${Heading} title="Playground" intro=${state.me?.server.upstream ? "Chat with the configured model." : "No model is configured: the answers are made of the memories themselves."}
      actions=${html`<label class="small">Memory <select value=${mode} onChange=${(/** @type {Event} */ event) => setMode(/** @type {HTMLSelectElement} */ (event.target).value)}>
          <option value="on">recall and learn</option><option value="read">recall only</option><option value="off">off</option></select></label>
        <button onClick=${() => { setSession(newSession()); setExchanges([]); }}>New session</button>`} />
    <div class="playground">
      ${!exchanges.length && html`<p class="soft">Tell it something about yourself, then start a new session and ask about it.</p>`}
      ${exchanges.map((each) => html`<${ExchangeView} key=${each.number} exchange=${each} />`)}
      <div ref=${end}></div>
    </div>
    <form class="row playground-form" onSubmit=${send}>
      <label class="visually-hidden" for="message">Message</label>
      <input id="message" name="message" autocomplete="off" placeholder="I moved to Bergen last week" required />
      <button class="primary" disabled=${busy}>${busy ? "…" : "Send"}</button>
    </form>`;
}

/** The built-in model does not quote its own answers. @param {import("../api.js").Memory} memory */
const isSource = (memory) => Boolean(state.me?.server.upstream) || memory.detail.role !== "assistant";

/**
 * Stream a chat; returns the status of memory, and how many memories were found.
 * @param {{role: string, content: string}[]} messages @param {string} session @param {string} mode @param {(text: string) => void} onText
 */
async function chat(messages, session, mode, onText) {
  const response = await fetch(address("/v1/chat/completions"), {
    method: "POST",
    credentials: "same-origin",
    headers: { "Content-Type": "application/json", "X-Recollect-Page": "1", "X-Memory-User": state.user, "X-Memory-Session": session, "X-Memory": mode },
    body: JSON.stringify({ model: state.me?.server.chat_model ?? "default", messages, stream: true }),
  });
  if (!response.ok || !response.body) {
    const data = await response.json().catch(() => null);
    throw new Error(data?.error?.message ?? `The model's server answered ${response.status}.`);
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    rest += value ?? "";
    const lines = rest.split("\n");
    rest = done ? "" : (lines.pop() ?? "");
    for (const line of lines) {
      if (!line.startsWith("data:") || line.includes("[DONE]")) continue;
      const event = JSON.parse(line.slice(5));
      if (event.error) throw new Error(event.error.message ?? "The model's server ended the answer.");
      onText(event.choices?.[0]?.delta?.content ?? "");
    }
    if (done) return { status: response.headers.get("X-Memory-Status") ?? "", hits: Number(response.headers.get("X-Memory-Hits")) };
  }
}

/** @param {{exchange: Exchange}} props */
function ExchangeView({ exchange }) {
  const { recalled, learned } = exchange;
  return html`<section class="exchange">
    <div class="stack">
      <div class="turn-box user"><${Text} text=${exchange.question} /></div>
      <div class="turn-box assistant" aria-live="polite">${exchange.answer ? html`<${Text} text=${exchange.answer} />` : !exchange.error && html`<span class="soft">…</span>`}<${Failure} error=${exchange.error} /></div>
    </div>
    <aside class="small">
      <h3>Recalled${recalled && html` <a class="small" href=${link("why", "", { q: exchange.question })}>why?</a>`}</h3>
      ${recalled === null ? html`<p class="soft">…</p>` : recalled.length ? html`<ul class="learned">${recalled.map((each) => html`<li key=${each.id}><a href=${link("memory", each.id)}><${Text} text=${shorten(each.memory, 140)} /></a>${each.category === "turn" && html` <${Badge} name=${`said by ${each.detail.role === "user" ? "you" : each.detail.role}`} />`}</li>`)}</ul>` : html`<p class="soft">${exchange.hits ? `${plural(exchange.hits, "memory", "memories")}; another process of the server has the list.` : "Nothing."}</p>`}
      <h3>Learned</h3>
      ${learned.length ? html`<ul class="learned">${learned.map((each) => html`<li class="fresh" key=${each.id}><a href=${link("memory", each.id)}><${Text} text=${shorten(each.memory, 140)} /></a><div class="meta"><${MemoryBadges} memory=${each} /></div></li>`)}</ul>` : html`<p class="soft">${exchange.done ? "Nothing so far." : "…"}</p>`}
      ${exchange.status && exchange.status !== "ok" && html`<p class="soft">Memory: ${visible(exchange.status)}</p>`}
      <span class="visually-hidden">${plural(learned.length, "memory", "memories")} learned</span>
    </aside>
  </section>`;
}
