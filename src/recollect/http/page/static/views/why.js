/** Why: every step of a recall, from the decision to search to the block that goes into the prompt. */

import { html, useEffect, useState } from "../vendor/preact.js";
import { get, post } from "../api.js";
import { Badge, Empty, Failure, Heading, Text, Time } from "../components/basics.js";
import { Contributions } from "../components/contributions.js";
import { duration, percent, plural, shorten, visible } from "../format.js";
import { link, setQuery, useLoad } from "../session.js";

/** @typedef {{id: string, memory: string, category: string, created_at: string, score: number, relevance: number, decision: string, selected: boolean, ranks: Record<string, number>, log_odds: any, in_prompt: boolean | null, forced: boolean}} Candidate */
/** @typedef {{outcome: string, reason: string, question?: string, query: string, context: {text: string, tokens: number, used: string[], cut: Record<string, string>, dropped: Record<string, string>}, steps_us: Record<string, number>, notes: string[], trace: any, candidates: Candidate[]}} Recall */

/** The steps of a recall in words. @type {Record<string, string>} */
const STEPS = { fuse: "score", current: "replace outdated", inject: "insert" };
/** @param {string} step */
const nameOf = (step) => STEPS[step] ?? step;

/** @param {{route: import("../session.js").Route}} props */
export function View({ route }) {
  const [question, recallId, memory] = ["q", "recall", "memory"].map((name) => route.query.get(name) ?? "");
  const result = useLoad(
    async () => {
      if (recallId) return /** @type {Recall} */ (await get(`recalls/${encodeURIComponent(recallId)}`));
      if (!question) return null;
      return /** @type {Recall} */ (await post("recall", { messages: question, trace: true, memory_id: memory || undefined }));
    },
    [question, recallId, memory],
  );
  return html`<${Heading} title="Why" intro="Ask what the assistant would be asked, and see what it would be told, and why." />
    <${QuestionForm} question=${question} memory=${memory} />
    <${Failure} error=${result.error} retry=${result.reload} />
    ${result.data ? html`<${Steps} recall=${result.data} question=${question || result.data.question || ""} memory=${memory} />` : !question && !recallId && html`<${RecentRecalls} />`}`;
}

/** @param {{question: string, memory: string}} props */
function QuestionForm({ question, memory }) {
  /** @param {SubmitEvent} event */
  const submit = (event) => {
    event.preventDefault();
    const form = new FormData(/** @type {HTMLFormElement} */ (event.target));
    setQuery({ q: String(form.get("q") ?? ""), recall: "" });
  };
  return html`<form class="row why-form" role="search" onSubmit=${submit}>
    <label class="visually-hidden" for="question">Question</label>
    <input id="question" type="search" name="q" key=${question} defaultValue=${question} placeholder="Where do I live?" required />
    <button class="primary">Ask</button>
    ${memory && html`<span class="small soft">with a look at one memory <button type="button" class="quiet" onClick=${() => setQuery({ memory: "" })}>remove</button></span>`}
  </form>`;
}

function RecentRecalls() {
  const { data, error, reload } = useLoad(() => get("recalls", { limit: 50 }), []);
  if (error) return html`<${Failure} error=${error} retry=${reload} />`;
  if (!data) return null;
  if (!data.results.length) {
    return html`<${Empty} title="No recall yet"><p>When an assistant asks, its recalls are listed here. Until then, type a question above.</p></${Empty}>`;
  }
  return html`<section class="card scroll"><h2>Recent recalls</h2>
    <table><thead><tr><th>Question</th><th>Outcome</th><th class="number">Used</th><th class="number">Time</th><th>When</th></tr></thead>
      <tbody>${data.results.map(
        (/** @type {any} */ each) => html`<tr key=${each.id}>
          <td><a href=${link("why", "", { recall: each.id })}><${Text} text=${shorten(each.question, 120)} /></a></td>
          <td>${each.outcome}</td><td class="number">${each.used}</td><td class="number">${duration(each.total_ms * 1000)}</td><td><${Time} at=${each.at} /></td></tr>`,
      )}</tbody></table></section>`;
}

/** @param {{recall: Recall, question: string, memory: string}} props */
function Steps({ recall, question, memory }) {
  const { trace } = recall;
  const steps = Object.entries(recall.steps_us).filter(([name]) => name !== "explain");
  const total = steps.reduce((sum, [, spent]) => sum + spent, 0);
  return html`<div class="stack why">
    <section class="card"><h2><span class="step">1</span> Decision</h2>
      <p>${recall.outcome === "skipped" ? "Not searched" : "Searched"}: ${visible(trace?.decision || recall.reason).replace(/^[01]\.\d\d(?= )/, (share) => percent(Number(share)))}</p>
      ${recall.query && recall.query !== question && html`<p>Rewritten to <q><${Text} text=${recall.query} /></q></p>`}
      ${trace?.inferred_terms?.length > 0 && html`<p class="small soft">Added from earlier messages: ${visible(trace.inferred_terms.join(", "))}</p>`}
    </section>
    ${recall.candidates.length > 0
      ? html`<${Candidates} recall=${recall} memory=${memory} />`
      : html`<section class="card"><h2><span class="step">2</span> Candidates</h2><p class="soft">${trace ? "No memory was considered." : "This recall was made without a trace."}
          ${!trace && question && html` <a href=${link("why", "", { q: question })}>Ask again with all steps</a>`}</p></section>`}
    <section class="card"><h2><span class="step">3</span> Block in the prompt</h2>
      <p class="small soft">${plural(recall.context.tokens, "token")}${trace?.budget_tokens ? ` of at most ${trace.budget_tokens.toLocaleString()}` : ""}, ${plural(recall.context.used.length, "memory", "memories")}</p>
      ${recall.context.text ? html`<pre dir="auto">${visible(recall.context.text)}</pre>` : html`<p>Nothing was added to the prompt.</p>`}
    </section>
    <section class="card"><h2>Time: ${duration(total)}</h2>
      <ul class="timings">${steps.map(([name, spent]) => html`<li key=${name} title=${percent(spent / (total || 1))}><span>${nameOf(name)}</span><b>${duration(spent)}</b></li>`)}</ul>
      ${recall.notes.length > 0 && html`<ul class="small soft">${recall.notes.map((note) => html`<li>${visible(note)}</li>`)}</ul>`}</section>
  </div>`;
}

/** @param {{recall: Recall, memory: string}} props */
function Candidates({ recall, memory }) {
  const [showsAll, setShowsAll] = useState(false);
  const [opened, setOpened] = useState(memory);
  useEffect(() => setOpened(memory), [memory]);
  const selected = recall.candidates.filter((each) => each.selected);
  const asked = recall.candidates.find((each) => each.id === memory);
  const rest = recall.candidates.filter((each) => !each.selected);
  const shown = showsAll ? rest : rest.slice(0, 5);
  /** @param {Candidate} each */
  const row = (each) => html`<${CandidateRow} key=${each.id} candidate=${each} dropped=${recall.context.dropped?.[each.id]} open=${opened === each.id} toggle=${() => setOpened(opened === each.id ? "" : each.id)} />`;
  return html`<section class="card"><h2><span class="step">2</span> Candidates</h2>
    <p class="small soft">${plural(recall.trace?.pool ?? recall.candidates.length, "memory", "memories")} considered, ${selected.length} selected. Open one to see what its relevance is made of.</p>
    ${asked && html`<p class="why-not"><b>Why not this one?</b> ${asked.selected ? `It was recalled, as number ${selected.indexOf(asked) + 1}.` : visible(asked.decision)}</p>`}
    ${memory && !asked && html`<p class="why-not"><b>Why not this one?</b> It was not found at all: it is not active, or belongs to another project.</p>`}
    <ol class="candidates">${selected.map(row)}</ol>
    ${rest.length > 0 && html`<h3>Not selected</h3><ol class="candidates">${shown.map(row)}</ol>`}
    ${rest.length > shown.length && html`<button onClick=${() => setShowsAll(true)}>Show ${rest.length - shown.length} more</button>`}
  </section>`;
}

/** @param {{candidate: Candidate, dropped?: string, open: boolean, toggle: () => void}} props */
function CandidateRow({ candidate, dropped, open, toggle }) {
  const path = Object.entries(candidate.ranks ?? {}).map(([step, rank]) => `${nameOf(step)} ${rank}`);
  const reason = candidate.selected ? (dropped ? `left out of the prompt: ${dropped}` : "") : candidate.decision;
  return html`<li class="candidate">
    <button class="candidate-head" aria-expanded=${open} onClick=${toggle}>
      <span class="candidate-score">${candidate.score.toFixed(2)}</span><${Text} text=${shorten(candidate.memory, 220)} />
    </button>
    <div class="meta"><${Badge} name=${candidate.category} /><span>${path.join(" → ")}</span>${reason && html`<span>${visible(reason)}</span>`}
      <a href=${link("memory", candidate.id)}>open</a></div>
    ${open && candidate.log_odds && html`<${Contributions} logOdds=${candidate.log_odds} />`}
  </li>`;
}
