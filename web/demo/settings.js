/** How answers are sampled: one table gives labels, limits and defaults, and everything else follows from it. */

import { keep, recall } from "./storage.js";

const KEY = "settings";

/**
 * `key` is the option of createCompletion; `fallback` its documented default (but for nPredict, where 256 is short for a
 * chat); `blank` what an empty field means, where it may be empty.
 */
export const FIELDS = [
  { key: "temp", label: "Temperature", fallback: 0.8, min: 0, max: 5, hint: "0 always takes the likeliest." },
  { key: "nPredict", label: "Longest answer", fallback: 512, min: 1, max: 32768, integer: true, hint: "In tokens." },
  { key: "topK", label: "Top-k", fallback: 40, min: 0, max: 1000, integer: true, hint: "0 is off." },
  { key: "topP", label: "Top-p", fallback: 0.95, min: 0, max: 1, hint: "1 is off." },
  { key: "minP", label: "Min-p", fallback: 0, min: 0, max: 1, hint: "0 is off." },
  { key: "penalty", label: "Repeat penalty", fallback: 1.1, min: 0.1, max: 5, hint: "1 is off." },
  { key: "presencePenalty", label: "Presence penalty", fallback: 0, min: -5, max: 5, hint: "0 is off." },
  { key: "seed", label: "Seed", fallback: null, min: 0, max: 2 ** 32 - 1, integer: true, blank: "random", hint: "Same seed, same answer." },
];

/**
 * The value of a field's text, or what is wrong with it.
 * @returns {{value: number | null} | {problem: string}}
 */
export function readField({ label, min, max, integer, blank }, text) {
  const trimmed = text.trim();
  if (!trimmed && blank) return { value: null };
  const value = Number(trimmed.replace(",", "."));
  const isRight = trimmed && Number.isFinite(value) && value >= min && value <= max && (!integer || Number.isInteger(value));
  if (isRight) return { value };
  const kind = integer ? "a whole number" : "a number";
  return { problem: `${label} is ${trimmed ? `“${trimmed}”` : "empty"}; it must be ${kind} from ${min} to ${max}${blank ? ", or empty" : ""}.` };
}

/** The settings and their form. A field with a problem says so and leaves the last right value in force. */
export class Settings {
  #values = keptValues();
  #systemPrompt = document.getElementById("system-prompt");
  #inputs = new Map();

  constructor() {
    const template = document.getElementById("field-template");
    for (const field of FIELDS) document.getElementById("sampling").append(this.#control(field, template));
    this.#systemPrompt.addEventListener("input", () => this.#set("systemPrompt", this.#systemPrompt.value));
    document.getElementById("reset").addEventListener("click", () => this.reset());
    document.getElementById("settings-form").addEventListener("submit", (event) => event.preventDefault());
    this.#show();
  }

  get systemPrompt() {
    return this.#values.systemPrompt.trim();
  }

  /** Options for createCompletion; an unset seed is left out, which draws a random one. */
  get sampling() {
    return Object.fromEntries(FIELDS.map(({ key }) => [key, this.#values[key]]).filter(([, value]) => value !== null));
  }

  /** The sampling goes back to its defaults; the system prompt is the person's own text and stays. */
  reset() {
    for (const { key, fallback } of FIELDS) this.#values[key] = fallback;
    keep(KEY, this.#values);
    this.#show();
  }

  #control(field, template) {
    const control = template.content.cloneNode(true).firstElementChild;
    const [label, input, hint, problem] = control.children;
    label.textContent = field.label;
    label.htmlFor = input.id = `setting-${field.key}`;
    hint.textContent = field.hint;
    hint.id = `${input.id}-hint`;
    problem.id = `${input.id}-problem`;
    input.setAttribute("aria-describedby", `${hint.id} ${problem.id}`);
    input.placeholder = field.blank ?? "";
    input.addEventListener("input", () => {
      const read = readField(field, input.value);
      problem.textContent = read.problem ?? "";
      input.setAttribute("aria-invalid", "problem" in read);
      if ("value" in read) this.#set(field.key, read.value);
    });
    this.#inputs.set(field.key, { input, problem });
    return control;
  }

  #set(key, value) {
    this.#values[key] = value;
    keep(KEY, this.#values);
  }

  #show() {
    this.#systemPrompt.value = this.#values.systemPrompt;
    for (const [key, { input, problem }] of this.#inputs) {
      input.value = this.#values[key] ?? "";
      input.setAttribute("aria-invalid", false);
      problem.textContent = "";
    }
  }
}

function keptValues() {
  const kept = recall(KEY, {});
  const values = { systemPrompt: typeof kept.systemPrompt === "string" ? kept.systemPrompt : "" };
  for (const field of FIELDS) {
    const read = readField(field, String(kept[field.key] ?? ""));
    values[field.key] = "value" in read && field.key in kept ? read.value : field.fallback;
  }
  return values;
}
