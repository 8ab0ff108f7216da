/** The pane that shows what runs here and how fast: figures of the last answer, context, engine, model, notes. */

import { browserFacts, engineFacts, modelFacts, runtimeNotes } from "./facts.js";
import { integer, milliseconds, plural, speed } from "./format.js";
import { speeds } from "./usage.js";

const LIVE_EVERY_MS = 250;
const TRACE_POINTS = 60;
const NONE = "–";

export class RunPane {
  #figures = document.getElementById("figures");
  #trace = document.querySelector("#trace polyline");
  #arrivals = [];
  #shown = 0;

  constructor() {
    fillFacts("browser-facts", browserFacts(globalThis));
    this.showFacts(null, null);
    this.showUsage(null);
  }

  /** @param {ReturnType<import("./engine.js").Engine["facts"]> | null} facts  null: no model is loaded */
  showFacts(facts, usage) {
    const metadata = facts?.metadata ?? {};
    fillFacts("engine-facts", facts ? engineFacts(facts) : []);
    fillFacts("model-facts", facts ? modelFacts(metadata) : []);
    const notes = runtimeNotes(metadata).map(noteItem);
    const none = document.createElement("li");
    none.textContent = "None.";
    document.getElementById("notes").replaceChildren(...(notes.length ? notes : [none]));
    this.#showContext(facts?.contextSize ?? 0, usage);
  }

  /** @param {object | null} usage  of the last answer */
  showUsage(usage) {
    const { prompt, decode, firstMs } = speeds(usage);
    this.#fill(decode, prompt, firstMs);
  }

  startTrace() {
    this.#arrivals = [];
    this.#shown = 0;
    this.#trace.setAttribute("points", "");
    this.#fill(null, null, null);
  }

  /** A piece of an answer arrived; about one token. */
  addToTrace(now) {
    this.#arrivals.push(now);
    if (now - this.#shown < LIVE_EVERY_MS || this.#arrivals.length < 3) return;
    this.#shown = now;
    const recent = this.#arrivals.slice(-TRACE_POINTS - 1);
    this.#fill((recent.length - 1) / ((recent.at(-1) - recent[0]) / 1000), null, null);
    this.#draw(recent);
  }

  #draw(times) {
    const gaps = times.slice(1).map((time, index) => Math.max(time - times[index], 1));
    const rates = gaps.map((_, index) => 1 / mean(gaps.slice(Math.max(0, index - 2), index + 1)));
    const most = Math.max(...rates);
    const points = rates.map((rate, index) => `${(index * 240) / TRACE_POINTS},${(39 - 36 * (rate / most)).toFixed(1)}`);
    this.#trace.setAttribute("points", points.join(" "));
  }

  #fill(decode, prompt, firstMs) {
    this.#figures.replaceChildren(
      figure("Answer", decode === null ? null : speed(decode), "tok/s"),
      figure("Prompt", prompt === null ? null : speed(prompt), "tok/s"),
      figure("First token", firstMs === null ? null : milliseconds(firstMs), ""),
    );
  }

  #showContext(size, usage) {
    const used = usage ? usage.promptTokens + usage.completionTokens : 0;
    const meter = document.getElementById("context-meter");
    meter.max = size || 1;
    meter.value = used;
    document.getElementById("context-text").textContent = `${integer(used)} of ${plural(size, "token")} used`;
  }
}

function figure(label, value, unit) {
  const group = document.createElement("div");
  const term = document.createElement("dt");
  const figure = document.createElement("dd");
  term.textContent = label;
  const [amount, ...ownUnit] = (value ?? NONE).split(" ");
  const small = document.createElement("small");
  small.textContent = value === null ? "" : ownUnit.join(" ") || unit;
  figure.append(amount, small);
  group.append(term, figure);
  return group;
}

function fillFacts(id, rows) {
  const groups = rows.map(([label, value]) => {
    const group = document.createElement("div");
    const term = document.createElement("dt");
    const fact = document.createElement("dd");
    term.textContent = label;
    fact.textContent = value;
    group.append(term, fact);
    return group;
  });
  document.getElementById(id).replaceChildren(...groups);
}

function noteItem({ code, meaning }) {
  const item = document.createElement("li");
  const name = document.createElement("code");
  name.textContent = code;
  item.append(...(meaning ? [`${meaning} `, name] : [name]));
  return item;
}

function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
