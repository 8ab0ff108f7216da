/** A transfer as it goes: rate over the last seconds and time left, and the drawing that fills with it. */

import { bytes, duration } from "./format.js";

const WINDOW_MS = 4000;
const FIRST_RATE_MS = 400; // an earlier rate would mostly measure the first packet
const REPAINT_MS = 100;

export class Transfer {
  loaded = 0;
  total = 0;
  #samples = [];

  /** @param {{loaded: number, total: number}} progress  in bytes @param {number} now  in milliseconds */
  add({ loaded, total }, now) {
    this.loaded = loaded;
    this.total = total || 0;
    this.#samples.push({ loaded, now });
    while (this.#samples.length > 2 && now - this.#samples[0].now > WINDOW_MS) this.#samples.shift();
  }

  /** Bytes per second, or null while too little time has passed. */
  get rate() {
    const first = this.#samples.at(0);
    const last = this.#samples.at(-1);
    if (!first || last.now - first.now < FIRST_RATE_MS) return null;
    return (last.loaded - first.loaded) / ((last.now - first.now) / 1000);
  }

  /** Seconds, or null while it cannot be told. */
  get secondsLeft() {
    return this.rate > 0 && this.total ? (this.total - this.loaded) / this.rate : null;
  }

  get isComplete() {
    return this.total > 0 && this.loaded >= this.total;
  }
}

/** Shows one load at a time. Every figure has its own place, so nothing moves while it changes. */
export class ProgressView {
  #crossing = document.getElementById("crossing");
  #bar = document.getElementById("progress");
  #stage = document.getElementById("progress-stage");
  #bytes = document.getElementById("progress-bytes");
  #rate = document.getElementById("progress-rate");
  #left = document.getElementById("progress-left");
  #transfer;
  #painted;

  start() {
    this.#transfer = new Transfer();
    this.#painted = -Infinity;
    this.#show("Starting the engine…", "waiting");
    this.#bar.removeAttribute("value"); // indeterminate
    this.#crossing.style.setProperty("--crossed", 0);
    for (const figure of [this.#bytes, this.#rate, this.#left]) figure.textContent = "";
  }

  update(progress) {
    const now = performance.now();
    this.#transfer.add(progress, now);
    if (now - this.#painted < REPAINT_MS && !this.#transfer.isComplete) return;
    this.#painted = now;
    this.#paint(this.#transfer);
  }

  end() {
    delete this.#crossing.dataset.stage;
    this.#crossing.style.setProperty("--crossed", 0);
  }

  #paint({ loaded, total, rate, secondsLeft, isComplete }) {
    this.#bytes.textContent = total ? `${bytes(loaded)} of ${bytes(total)}` : bytes(loaded);
    if (isComplete) {
      this.#show("Preparing the model…", "waiting");
      this.#rate.textContent = this.#left.textContent = "";
    } else {
      this.#show("Loading the model", "moving");
      this.#rate.textContent = rate === null ? "" : `${bytes(rate)}/s`;
      this.#left.textContent = secondsLeft === null ? "" : `${duration(secondsLeft)} left`;
    }
    if (!total) return;
    this.#bar.value = loaded / total;
    this.#crossing.style.setProperty("--crossed", loaded / total);
  }

  #show(stage, kind) {
    this.#stage.textContent = stage;
    this.#crossing.dataset.stage = kind;
  }
}
