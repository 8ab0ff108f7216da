/** The list of tensors: filtered, sorted, each with a look at its rows. */

import { bytes, integer, plural } from "../demo/format.js";
import { byId, element } from "./elements.js";
import { RowView } from "./row_view.js";

const FIRST_SHOWN = 40; // a model has hundreds, one of many experts thousands
const COLUMNS = [
  { title: "Name", of: (tensor) => tensor.name, className: "name" },
  { title: "Type", of: (tensor) => tensor.dtype },
  { title: "Shape", of: (tensor) => tensor.shape, shown: (shape) => shape.map(integer).join(" × ") },
  { title: "Size", of: (tensor) => tensor.nbytes, shown: bytes, number: true },
  { title: "Offset", of: (tensor) => tensor.offset, shown: integer, number: true, optional: true },
];
const elements = (shape) => shape.reduce((product, size) => product * size, 1);

export class TensorTable {
  #model = null;
  #tensors = [];
  #sort = { column: null, falling: false }; // null: as in the file
  #all = false;
  #explain;

  /** @param {(error: unknown) => string} explain */
  constructor(explain) {
    this.#explain = explain;
    byId("tensor-filter").addEventListener("input", () => this.#show());
    byId("more-tensors").addEventListener("click", () => {
      this.#all = true;
      this.#show();
      byId("tensors").querySelector(`tbody tr:nth-child(${FIRST_SHOWN + 1}) button`)?.focus();
    });
  }

  show(model) {
    this.#model = model;
    this.#tensors = [...model.tensors.values()];
    this.#sort = { column: null, falling: false };
    this.#all = false;
    byId("tensor-filter").value = "";
    this.#show();
  }

  #show() {
    const wanted = byId("tensor-filter").value.trim().toLowerCase();
    const found = this.#tensors.filter(({ name, dtype }) => name.toLowerCase().includes(wanted) || dtype.toLowerCase() === wanted);
    const { column, falling } = this.#sort;
    if (column) {
      const key = (tensor) => (Array.isArray(column.of(tensor)) ? elements(column.of(tensor)) : column.of(tensor));
      const compare = (a, b) => (typeof key(a) === "string" ? key(a).localeCompare(key(b), "en", { numeric: true }) : key(a) - key(b));
      found.sort((a, b) => (falling ? compare(b, a) : compare(a, b)));
    }
    const shown = this.#all ? found : found.slice(0, FIRST_SHOWN);
    byId("tensors").replaceChildren(this.#head(), element("tbody", {}, ...shown.map((tensor) => this.#row(tensor))));
    byId("tensor-count").textContent =
      found.length === this.#tensors.length ? plural(found.length, "tensor") : `${integer(found.length)} of ${plural(this.#tensors.length, "tensor")}`;
    byId("more-tensors").hidden = shown.length === found.length;
    byId("more-tensors").textContent = `Show all ${integer(found.length)}`;
  }

  #head() {
    const cells = COLUMNS.map((column) => {
      const button = element("button", { type: "button", textContent: column.title });
      button.addEventListener("click", () => {
        const again = this.#sort.column === column;
        this.#sort = { column, falling: again ? !this.#sort.falling : column.number === true };
        this.#show();
        byId("tensors").querySelectorAll("th button")[COLUMNS.indexOf(column)].focus();
      });
      const cell = element("th", { scope: "col", className: classes(column) }, button);
      if (this.#sort.column === column) cell.ariaSort = this.#sort.falling ? "descending" : "ascending";
      return cell;
    });
    return element("thead", {}, element("tr", {}, ...cells));
  }

  #row(tensor) {
    const cells = COLUMNS.map((column) => {
      const value = column.of(tensor);
      if (column.className !== "name") return element("td", { className: classes(column), textContent: column.shown?.(value) ?? value });
      const button = element("button", { type: "button", textContent: value, "@aria-expanded": "false", title: "Look at its rows" });
      button.addEventListener("click", () => this.#toggle(tensor, button));
      return element("td", { className: "name" }, button);
    });
    return element("tr", {}, ...cells);
  }

  #toggle(tensor, button) {
    const row = button.closest("tr");
    const isOpen = button.ariaExpanded === "true";
    button.ariaExpanded = String(!isOpen);
    if (isOpen) {
      row.nextElementSibling.remove();
      return;
    }
    const view = new RowView(this.#model, tensor, this.#explain);
    row.after(element("tr", { className: "detail" }, element("td", { colSpan: COLUMNS.length }, view.element)));
    view.read(0);
  }
}

const classes = ({ className, number, optional }) => [className, number && "number", optional && "optional"].filter(Boolean).join(" ");
