/** Opens one pane at a time. With room it stands beside the conversation; on a narrow page it takes its place. */

import { keep, recall } from "./storage.js";

const PANES = ["run", "settings"];
const wide = matchMedia("(min-width: 62rem)");

export class Panes {
  constructor() {
    for (const name of PANES) opener(name).addEventListener("click", () => this.#toggle(name));
    for (const button of document.querySelectorAll("[data-close]")) button.addEventListener("click", () => this.close());
    wide.addEventListener("change", () => this.#show(wide.matches ? this.#remembered() : null));
    this.#show(wide.matches ? this.#remembered() : null);
  }

  /** Whether a pane covers the conversation. */
  get isCovering() {
    return !wide.matches && this.#open !== null;
  }

  close() {
    const name = this.#open;
    this.#show(null);
    if (name) opener(name).focus();
  }

  get #open() {
    return document.body.dataset.pane ?? null;
  }

  #toggle(name) {
    if (this.#open === name) return this.close();
    this.#show(name);
    if (!wide.matches) document.getElementById(`${name}-title`).focus();
  }

  #show(name) {
    for (const pane of PANES) {
      document.getElementById(pane).hidden = pane !== name;
      opener(pane).setAttribute("aria-expanded", pane === name);
    }
    if (name) document.body.dataset.pane = name;
    else delete document.body.dataset.pane;
    if (wide.matches) keep("pane", name ?? "none");
  }

  #remembered() {
    const name = recall("pane", "run");
    return PANES.includes(name) ? name : null;
  }
}

function opener(name) {
  return document.getElementById(`open-${name}`);
}
