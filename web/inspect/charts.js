/** The drawings: the file as a bar with what was read of it, bytes per type, bytes per layer. */

import { bytes, integer, plural } from "../demo/format.js";
import { byId, element } from "./elements.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 1000; // of the map's drawing
const [BAR_TOP, BAR_HEIGHT, READ_HEIGHT] = [14, 26, 10];

/** Draws the file: tensors in their types' colours, neighbours of one type as one piece. */
export function showMap(model, summary) {
  const color = new Map(summary.types.map(({ name, color: value }) => [name, value]));
  const rects = [rect("body", 0, model.size, model.size, BAR_TOP, BAR_HEIGHT)];
  for (const { start, end, dtype } of runs(model.tensors.values())) {
    const piece = rect("", start, end, model.size, BAR_TOP, BAR_HEIGHT);
    piece.style.fill = color.get(dtype);
    rects.push(piece);
  }
  const reads = document.createElementNS(SVG, "g");
  reads.setAttribute("class", "reads");
  byId("map").replaceChildren(...rects, reads);
}

/** Marks what was read above the bar, and says how much that is. */
export function showReads(source) {
  const size = source.size();
  const marks = source.ranges().map(([start, end]) => rect("", start, end, size, 0, READ_HEIGHT));
  byId("map").querySelector(".reads")?.replaceChildren(...marks);
  byId("read-line").textContent =
    `${bytes(source.bytesRead())} of ${bytes(size)} read, in ${plural(source.ranges().length, "request")}.`;
}

/** Stretches of tensors of one type; small gaps are alignment. */
function* runs(tensors) {
  let run = null;
  for (const { offset, nbytes, dtype } of tensors) {
    if (run && run.dtype === dtype && offset - run.end < 4096) {
      run.end = offset + nbytes;
      continue;
    }
    if (run) yield run;
    run = { start: offset, end: offset + nbytes, dtype };
  }
  if (run) yield run;
}

function rect(className, start, end, size, y, height) {
  const made = document.createElementNS(SVG, "rect");
  const place = { x: (start / size) * WIDTH, y, height, width: Math.max(((end - start) / size) * WIDTH, className ? 0 : 1) };
  for (const [name, value] of Object.entries(place)) made.setAttribute(name, value);
  if (className) made.setAttribute("class", className);
  return made;
}

export function showTypes({ types, nbytes }) {
  const head = element("tr", {}, ...["Type", "Tensors", "Parameters", "Size", ""].map((text) => element("th", { textContent: text, scope: "col" })));
  const rows = types.map((type) => {
    const chip = element("span", { className: "chip" });
    const length = element("span", { className: "length" });
    for (const { style } of [chip, length]) style.background = type.color;
    length.style.width = `${(100 * type.nbytes) / types[0].nbytes}%`;
    return element("tr", {},
      element("td", {}, chip, type.name),
      element("td", { textContent: integer(type.tensors) }),
      element("td", { textContent: count(type.parameters) }),
      element("td", { textContent: bytes(type.nbytes), title: `${((100 * type.nbytes) / nbytes).toFixed(1)} % of the tensors` }),
      element("td", { className: "share", "@aria-hidden": "true" }, length));
  });
  byId("types").replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows));
}

/** Layers as bars of one scale; what lies outside them, often larger than all of them, in words. */
export function showLayers({ layers, others, types }) {
  const most = Math.max(...layers.map((layer) => layer.nbytes), 1);
  const caption = byId("layers-caption");
  const bars = layers.map((layer) => {
    const told = `${layer.label}: ${bytes(layer.nbytes)} in ${plural(layer.tensors, "tensor")}`;
    const bar = element("div", { className: "layer", title: told, "@role": "listitem", "@aria-label": told });
    for (const { name, color } of types) {
      if (!layer.types.has(name)) continue;
      const piece = element("span");
      piece.style.background = color;
      piece.style.height = `${(100 * layer.types.get(name)) / most}%`;
      bar.append(piece);
    }
    bar.addEventListener("pointerenter", () => (caption.textContent = `${told}.`));
    return bar;
  });
  byId("layers").hidden = !bars.length;
  byId("layers").replaceChildren(...bars);
  caption.textContent = layersCaption(layers, others);
}

function layersCaption(layers, others) {
  const most = bytes(Math.max(...layers.map((layer) => layer.nbytes), 0));
  const inside = [
    "No tensor belongs to a layer.",
    `One layer of ${most}.`,
    `${integer(layers.length)} layers, ${layers[0]?.label} to ${layers.at(-1)?.label}, up to ${most} each.`,
  ][Math.min(layers.length, 2)];
  const outside = others.map(({ label, nbytes }) => `${label} ${bytes(nbytes)}`).join(", ");
  return outside ? `${inside} Outside the layers: ${outside}.` : inside;
}

/** 134515008 -> "134.5 M" */
export function count(value) {
  const [unit, size] = value >= 1e9 ? ["B", 1e9] : value >= 1e6 ? ["M", 1e6] : value >= 1e3 ? ["k", 1e3] : ["", 1];
  const number = value / size;
  return unit ? `${number.toFixed(number >= 100 ? 0 : number >= 10 ? 1 : 2)}\u00a0${unit}` : String(value);
}
