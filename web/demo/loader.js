/** The form that chooses a model and how to load it. What was chosen is kept in this browser, a local file never. */

import { bytes } from "./format.js";
import { ProgressView } from "./progress.js";
import { keep, recall } from "./storage.js";

const KEY = "loader";
const MANIFEST = new URL("models.json", import.meta.url);
const DEFAULTS = { source: null, url: "", nCtx: "2048", execution: "worker", gpuLayers: "" };
const MAX_GPU_LAYERS = 999;

const byId = (id) => document.getElementById(id);

export class Loader {
  progress = new ProgressView();
  #models = [];
  #file = null;
  #chosen = { ...DEFAULTS, ...recall(KEY, {}) };

  /**
   * @param {{onLoad: (source: string | File, options: object, name?: string) => void, onCancel: () => void}} handlers
   *   `name` is what the manifest calls the model; any other is called what its file says
   */
  constructor({ onLoad, onCancel }) {
    byId("load-form").addEventListener("submit", (event) => {
      event.preventDefault();
      const source = this.#source();
      const options = this.#options();
      if (source && options) onLoad(source, options, this.#model?.name);
    });
    byId("cancel-load").addEventListener("click", onCancel);
    byId("load-form").addEventListener("input", () => this.#notice());
    byId("model-file").addEventListener("change", ({ target }) => this.chooseFile(target.files[0] ?? null));
    byId("model-url").value = this.#chosen.url;
    byId("n-ctx").value = this.#chosen.nCtx;
    byId("execution").value = this.#chosen.execution;
    byId("gpu-layers").value = this.#chosen.gpuLayers;
    for (const select of [byId("n-ctx"), byId("execution")]) {
      if (!select.value) select.value = select.id === "n-ctx" ? DEFAULTS.nCtx : DEFAULTS.execution; // kept by another version
    }
  }

  /** Offers the models that are served beside this page, then shows the last choice. */
  async start() {
    this.#models = await manifest();
    const others = byId("sources").querySelector('[data-kind="url"]');
    for (const model of this.#models) others.before(sourceRow(model));
    const radios = [...byId("load-form").elements.source];
    (radios.find((radio) => radio.value === this.#chosen.source) ?? radios[0]).checked = true;
    this.#notice();
    byId("load").disabled = false; // until now a press would have sent the form to the server
  }

  chooseFile(file) {
    this.#file = file;
    byId("load-form").elements.source.value = "file";
    byId("file-note").textContent = file
      ? `${file.name}, ${bytes(file.size)}. It is read here and sent nowhere.`
      : "Choose a GGUF file, or drop it anywhere on this page. It is read here and sent nowhere.";
    this.#notice();
  }

  /** While a model loads the form is closed, except for the way out. */
  setBusy(isBusy) {
    byId("sources").disabled = isBusy;
    for (const control of document.querySelectorAll(".option-grid :is(input, select)")) control.disabled = isBusy;
    if (isBusy) this.progress.start();
    else this.progress.end();
  }

  get #kind() {
    return byId("load-form").elements.source.value;
  }

  get #model() {
    return this.#models.find((model) => model.file === this.#kind);
  }

  /** The chosen model's address or file, or null after saying what is missing. */
  #source() {
    if (this.#model) return new URL(this.#model.file, MANIFEST).href;
    if (this.#kind === "file") {
      const problem = !this.#file ? "Choose a file first." : this.#file.size === 0 ? "This file is empty." : "";
      return report("model-file", "file-problem", problem) ? this.#file : null;
    }
    const text = byId("model-url").value.trim();
    return report("model-url", "url-problem", urlProblem(text)) ? new URL(text, location.href).href : null;
  }

  /** The load options, or null after saying what is wrong with them. */
  #options() {
    const layers = byId("gpu-layers").value.trim();
    const isRight = layers === "" || (/^\d+$/.test(layers) && Number(layers) <= MAX_GPU_LAYERS);
    const problem = isRight ? "" : `GPU layers is “${layers}”; it must be a whole number from 0 to ${MAX_GPU_LAYERS}, or empty.`;
    if (!report("gpu-layers", "gpu-layers-problem", problem)) return null;
    const { nCtx, execution } = this.#chosen;
    return { nCtx: Number(nCtx), execution, nGpuLayers: layers === "" ? null : Number(layers) };
  }

  /** Something in the form changed: keeps it and tells what loading will cost. */
  #notice() {
    this.#chosen = {
      source: this.#kind === "file" ? this.#chosen.source : this.#kind,
      url: byId("model-url").value.trim(),
      nCtx: byId("n-ctx").value,
      execution: byId("execution").value,
      gpuLayers: byId("gpu-layers").value.trim(),
    };
    keep(KEY, this.#chosen);
    for (const [input, problem] of [["model-url", "url-problem"], ["model-file", "file-problem"], ["gpu-layers", "gpu-layers-problem"]]) {
      report(input, problem, "");
    }
    byId("load-label").textContent = this.#model ? `Load model, ${bytes(this.#model.bytes)}` : "Load model";
    byId("welcome-size").textContent = this.#model
      ? `Loading it means downloading ${bytes(this.#model.bytes)}.`
      : this.#kind === "file"
        ? "It is read from your disk, so nothing is downloaded."
        : "Loading it means downloading it, often some hundred megabytes.";
  }
}

/** The models served beside this page; none when there is no manifest, since any address or file works without it. */
async function manifest() {
  try {
    const response = await fetch(MANIFEST);
    return response.ok ? (await response.json()).models : [];
  } catch {
    return [];
  }
}

function sourceRow({ name, file, bytes: size, description }) {
  const row = byId("sources").querySelector('[data-kind="url"]').cloneNode(true);
  row.dataset.kind = "model";
  row.querySelector("input").value = file;
  row.querySelector(".source-name").textContent = name;
  row.querySelector(".source-note").textContent = description;
  const sizeText = document.createElement("span");
  sizeText.className = "source-size";
  sizeText.textContent = bytes(size);
  row.querySelector(".source-name").after(sizeText);
  return row;
}

function urlProblem(text) {
  if (!text) return "Paste the address of a GGUF file.";
  const url = URL.parse(text, location.href);
  if (!url) return "This is not a web address.";
  return /^https?:$/.test(url.protocol) ? "" : `The address begins with “${url.protocol}”; it must begin with https: or http:.`;
}

/** Shows `problem` at a control and goes there, or clears it. @returns {boolean} whether there is none */
function report(inputId, problemId, problem) {
  byId(problemId).textContent = problem;
  byId(inputId).setAttribute("aria-invalid", problem !== "");
  if (problem) {
    byId(inputId).closest("details")?.setAttribute("open", "");
    byId(inputId).focus();
  }
  return problem === "";
}
