/** Texts, dates and differences as a person reads them. Everything is text: nothing here makes markup. */

const DAY_MS = 86_400_000;
const relative = new Intl.RelativeTimeFormat(undefined, { numeric: "auto" });
const dateFormat = new Intl.DateTimeFormat(undefined, { year: "numeric", month: "short", day: "numeric" });
const timeFormat = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const fullFormat = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "medium" });

/** @param {string | null | undefined} iso @returns {string} "5 minutes ago", "yesterday", or a date */
export function ago(iso) {
  if (!iso) return "";
  const then = new Date(iso).getTime();
  const seconds = (then - Date.now()) / 1000;
  if (Math.abs(seconds) < 45) return "just now";
  if (Math.abs(seconds) < 3600) return relative.format(Math.round(seconds / 60), "minute");
  if (Math.abs(seconds) < 86_400) return relative.format(Math.round(seconds / 3600), "hour");
  if (Math.abs(seconds) < 7 * 86_400) return relative.format(Math.round(seconds / 86_400), "day");
  return dateFormat.format(then);
}

/** @param {string | null | undefined} iso */
export const day = (iso) => (iso ? dateFormat.format(new Date(iso)) : "");
/** @param {string | null | undefined} iso */
export const clock = (iso) => (iso ? timeFormat.format(new Date(iso)) : "");
/** @param {string | null | undefined} iso */
export const fullTime = (iso) => (iso ? fullFormat.format(new Date(iso)) : "");

/** @param {string} iso @returns {string} "Today", "Yesterday", or a date: the heading of a day */
export function dayHeading(iso) {
  const midnight = new Date().setHours(0, 0, 0, 0);
  const then = new Date(iso).getTime();
  if (then >= midnight) return "Today";
  if (then >= midnight - DAY_MS) return "Yesterday";
  return dateFormat.format(then);
}

// Bidirectional controls and other invisible characters could make a text look like another one.
const INVISIBLE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\u{e0000}-\u{e007f}]/gu;
/** @param {unknown} text @returns {string} the text with invisible characters shown as their code */
export function visible(text) {
  return String(text ?? "").replace(INVISIBLE, (each) => `⟨${(each.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

/** @param {unknown} text @param {number} limit @returns {string} */
export function shorten(text, limit) {
  const clean = visible(typeof text === "string" && text.length > limit * 2 ? text.slice(0, limit * 2) : text);
  return clean.length <= limit ? clean : `${clean.slice(0, limit - 1).trimEnd()}…`;
}

/** @param {number} count @param {string} one @param {string} [many] */
export const plural = (count, one, many = `${one}s`) => `${count.toLocaleString()} ${count === 1 ? one : many}`;

/** @param {number} value from 0 to 1 */
export const percent = (value) => `${Math.round(value * 100)} %`;

/** @param {number} bytes */
export function size(bytes) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  const power = Math.min(Math.floor(Math.log(Math.max(bytes, 1)) / Math.log(1000)), units.length - 1);
  return `${(bytes / 1000 ** power).toFixed(power ? 1 : 0)} ${units[power]}`;
}

/** @param {number} microseconds */
export const duration = (microseconds) =>
  microseconds < 1000 ? `${Math.round(microseconds)} µs` : microseconds < 1e6 ? `${(microseconds / 1000).toFixed(1)} ms` : `${(microseconds / 1e6).toFixed(1)} s`;

/**
 * The word difference of two texts, by their longest common sequence of words.
 * @param {string} before @param {string} after
 * @returns {{kind: "same" | "added" | "removed", text: string}[]}
 */
export function wordDiff(before, after) {
  const [old, young] = [before, after].map((text) => visible(text).split(/(\s+)/).filter(Boolean));
  if (old.length * young.length > 250_000) {
    return [{ kind: "removed", text: visible(before) }, { kind: "added", text: visible(after) }];
  }
  const width = young.length + 1;
  const table = new Uint16Array((old.length + 1) * width);
  for (let i = old.length - 1; i >= 0; i--) {
    for (let j = young.length - 1; j >= 0; j--) {
      table[i * width + j] = old[i] === young[j]
        ? table[(i + 1) * width + j + 1] + 1
        : Math.max(table[(i + 1) * width + j], table[i * width + j + 1]);
    }
  }
  /** @type {{kind: "same" | "added" | "removed", text: string}[]} */
  const parts = [];
  /** @param {"same" | "added" | "removed"} kind @param {string} text */
  const push = (kind, text) => {
    const last = parts.at(-1);
    if (last?.kind === kind) last.text += text;
    else parts.push({ kind, text });
  };
  let [i, j] = [0, 0];
  while (i < old.length || j < young.length) {
    if (i < old.length && j < young.length && old[i] === young[j]) {
      push("same", old[i++]);
      j++;
    } else if (i < old.length && (j === young.length || table[(i + 1) * width + j] >= table[i * width + j + 1])) push("removed", old[i++]);
    else push("added", young[j++]);
  }
  return parts;
}
