/** The metadata as a list; long values are folded, long arrays told by their beginning. */

import { integer, plural } from "../demo/format.js";
import { byId, element } from "./elements.js";

const LONG_TEXT = 240;

export class MetadataTable {
  #rows = []; // {row, text}
  #total = 0;

  constructor() {
    byId("metadata-filter").addEventListener("input", () => this.#filter());
  }

  show(model) {
    const head = element("tr", {}, ...["Key", "Type", "Value"].map((text) => element("th", { scope: "col" }, element("span", { className: "kind", textContent: text }))));
    this.#rows = [...model.metadata].map(([key, value]) => {
      const type = model.metadataTypes.get(key);
      const row = element("tr", {},
        element("td", { className: "name", textContent: key }),
        element("td", { className: "kind optional", textContent: type }),
        element("td", { className: "value" }, shownValue(value)));
      return { row, text: `${key}\n${row.lastChild.textContent}`.toLowerCase() };
    });
    this.#total = this.#rows.length;
    head.children[1].className = "optional";
    byId("metadata").replaceChildren(element("thead", {}, head), element("tbody", {}, ...this.#rows.map(({ row }) => row)));
    byId("metadata-filter").value = "";
    this.#filter();
  }

  #filter() {
    const wanted = byId("metadata-filter").value.trim().toLowerCase();
    let found = 0;
    for (const { row, text } of this.#rows) {
      row.hidden = !text.includes(wanted);
      found += row.hidden ? 0 : 1;
    }
    byId("metadata-count").textContent = found === this.#total ? plural(found, "key") : `${integer(found)} of ${plural(this.#total, "key")}`;
  }
}

function shownValue(value) {
  if (typeof value === "string" && value.length > LONG_TEXT) {
    const summary = element("summary", { textContent: `${visible(value.slice(0, 80))}… ${plural(value.length, "character")}` });
    return element("details", {}, summary, element("pre", { textContent: value }));
  }
  if (Array.isArray(value)) return value.map(oneValue).join(", ") || "none";
  if (typeof value === "object") return `${value.first.map(oneValue).join(", ")} … ${integer(value.length)} in all`;
  return oneValue(value);
}

function oneValue(value) {
  if (typeof value === "string") return visible(value);
  if (typeof value === "number" && !Number.isInteger(value)) return String(Number(value.toPrecision(7)));
  return String(value);
}

/** Line ends would tear the list apart. */
const visible = (text) => text.replaceAll("\n", "⏎").replaceAll("\t", "⇥");
