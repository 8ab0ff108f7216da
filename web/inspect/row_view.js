/** One tensor's rows, one at a time: drawn, in figures, and how little was read for it. */

import { bytes, integer } from "../demo/format.js";
import { element } from "./elements.js";

const SHOWN_VALUES = 8;

export class RowView {
  #model;
  #tensor;
  #explain;
  #input;
  #canvas = element("canvas", { "@aria-hidden": "true" });
  #values = element("p", { className: "row-values" });
  #facts = element("p", { className: "row-facts", "@role": "status" });
  #problem = element("p", { className: "problem" });
  #row = null;

  constructor(model, tensor, explain) {
    this.#model = model;
    this.#tensor = tensor;
    this.#explain = explain;
    const count = tensor.shape.slice(0, -1).reduce((product, size) => product * size, 1);
    this.#input = element("input", { type: "number", min: 0, max: count - 1, step: 1, value: 0, "@aria-label": `Row of ${tensor.name}` });
    const form = element("form", { className: "row-ask", noValidate: true },
      element("span", { textContent: "Row" }), this.#input, element("span", { className: "soft", textContent: `of ${integer(count)}` }),
      element("button", { type: "submit", className: "small", textContent: "Decode" }));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.read(this.#input.value.trim() === "" ? Number.NaN : Number(this.#input.value));
    });
    this.element = element("div", { className: "row-view" }, form, this.#problem, this.#canvas, this.#values, this.#facts);
    new ResizeObserver(() => this.#draw()).observe(this.#canvas);
  }

  async read(id) {
    this.#problem.textContent = "";
    this.#facts.textContent = "Reading…";
    try {
      this.#row = await this.#model.rows(this.#tensor.name, [id]);
    } catch (error) {
      this.#problem.textContent = this.#explain(error);
      this.#facts.textContent = "";
      return;
    }
    this.#draw();
    const numbers = [...this.#row.subarray(0, SHOWN_VALUES)].map((value) => value.toPrecision(4));
    const more = this.#row.length - numbers.length;
    this.#values.textContent = numbers.join("  ") + (more > 0 ? `  … ${integer(more)} more` : "");
    const { least, most, mean, deviation } = figures(this.#row);
    this.#facts.textContent =
      `${least.toPrecision(3)} to ${most.toPrecision(3)}, mean ${mean.toPrecision(3)}, deviation ${deviation.toPrecision(3)} · ` +
      `${bytes(this.#row.byteLength)} decoded, not ${bytes(this.#tensor.nbytes)}`;
  }

  /** The row as bars around zero; columns of the picture that hold several values show their extremes. */
  #draw() {
    if (!this.#row || !this.#canvas.clientWidth) return;
    const width = (this.#canvas.width = this.#canvas.clientWidth * devicePixelRatio);
    const height = (this.#canvas.height = this.#canvas.clientHeight * devicePixelRatio);
    const pen = this.#canvas.getContext("2d");
    const reach = this.#row.reduce((far, value) => Math.max(far, Math.abs(value) || 0), 0) || 1;
    const y = (value) => height / 2 - (value / reach) * (height / 2 - 1);
    pen.fillStyle = getComputedStyle(this.#canvas).color;
    pen.globalAlpha = 0.3;
    pen.fillRect(0, height / 2, width, 1);
    pen.globalAlpha = 1;
    const columns = Math.min(this.#row.length, width);
    for (let i = 0; i < columns; i += 1) {
      const from = Math.floor((i * this.#row.length) / columns);
      const part = this.#row.subarray(from, Math.max(from + 1, Math.floor(((i + 1) * this.#row.length) / columns)));
      const top = y(Math.max(0, ...part));
      pen.fillRect((i * width) / columns, top, Math.max(width / columns - 0.5, 1), Math.max(y(Math.min(0, ...part)) - top, 1));
    }
  }
}

function figures(values) {
  let [least, most, total, squares] = [Infinity, -Infinity, 0, 0];
  for (const value of values) {
    least = Math.min(least, value);
    most = Math.max(most, value);
    total += value;
    squares += value * value;
  }
  const mean = total / values.length;
  return { least, most, mean, deviation: Math.sqrt(Math.max(squares / values.length - mean * mean, 0)) };
}
