/** Text in, tokens out, while typing. The tokenizer is built when a text is first looked at. */

import { integer, plural } from "../demo/format.js";
import { byId, element } from "./elements.js";

const EXAMPLE = "The capital of France is Paris; 12,345 naïve façades, 桥 and 🌉.";
const PAUSE_MS = 150;
const MOST_SHOWN = 2000;

export class TokenPlayground {
  #model = null;
  #explain;
  #timer = 0;
  #turn = 0; // the latest text asked about; answers to earlier ones are dropped

  /** @param {(error: unknown) => string} explain */
  constructor(explain) {
    this.#explain = explain;
    byId("text").value = EXAMPLE;
    for (const id of ["text", "add-special", "parse-special"]) byId(id).addEventListener("input", () => this.#later());
  }

  show(model) {
    this.#model = model;
    byId("tokens").replaceChildren();
    this.#update();
  }

  #later() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#update(), PAUSE_MS);
  }

  async #update() {
    const turn = (this.#turn += 1);
    const text = byId("text").value;
    const options = { addSpecial: byId("add-special").checked, parseSpecial: byId("parse-special").checked };
    if (!byId("tokens").firstChild) byId("token-count").textContent = "Building the tokenizer…";
    try {
      const tokenizer = this.#model.tokenizer();
      const ids = await tokenizer.encode(text, options);
      const shown = ids.slice(0, MOST_SHOWN);
      const pieces = await tokenizer.pieces(shown);
      if (turn === this.#turn) this.#show(ids, shown, pieces, text);
    } catch (error) {
      if (turn !== this.#turn || error?.code === "CLOSED") return;
      byId("token-count").textContent = this.#explain(error);
      byId("tokens").replaceChildren();
    }
  }

  #show(ids, shown, pieces, text) {
    const size = new TextEncoder().encode(text).length;
    const rest = ids.length > shown.length ? `, the first ${integer(shown.length)} shown` : "";
    byId("token-count").textContent = `${plural(ids.length, "token")} for ${plural(size, "byte")}${rest}`;
    byId("tokens").replaceChildren(...shown.map((id, i) => element("li", { className: "token" },
      element("b", { textContent: pieceText(pieces[i]) }), element("small", { textContent: id }))));
  }
}

/** What a token says; parts of characters, which are no text by themselves, in hexadecimal. */
function pieceText(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes).replaceAll("\n", "⏎").replaceAll(" ", "·");
  } catch {
    return [...bytes].map((byte) => `‹${byte.toString(16).padStart(2, "0")}›`).join("");
  }
}
