/**
 * Joins the parts of the page. There are three phases, in body[data-phase]: "idle" (nothing open), "opening" and "open".
 * A model that is open stays until another one has been opened in its place.
 */

import { fromBlob, fromURL, joinSources, openGGUF, shardURLs } from "../gguf.js";
import { bytes, plural } from "../demo/format.js";
import { startThemeButton } from "../demo/theme.js";
import { count, showLayers, showMap, showReads, showTypes } from "./charts.js";
import { countingSource } from "./counting_source.js";
import { acceptDrops } from "./drops.js";
import { byId, element } from "./elements.js";
import { explain } from "./explain.js";
import { MetadataTable } from "./metadata_table.js";
import { summarise } from "./summary.js";
import { TensorTable } from "./tensor_table.js";
import { TokenPlayground } from "./token_playground.js";

const SERVED = new URL("../demo/models.json", import.meta.url);

const tensorTable = new TensorTable(explain);
const metadataTable = new MetadataTable();
const tokenPlayground = new TokenPlayground(explain);
let current = null; // {model, source}
let opening = null; // the AbortController of an open under way

/** Opens what `makeSource` gives, and shows it under `name` where the file has none of its own. */
async function open(makeSource, name) {
  opening?.abort();
  const controller = (opening = new AbortController());
  const before = document.body.dataset.phase === "open" || current ? "open" : "idle";
  document.body.dataset.phase = "opening";
  byId("alert-region").replaceChildren();
  byId("opening").textContent = `Reading the header of ${name}…`;
  let source = null;
  try {
    source = countingSource(makeSource(), () => source === current?.source && showReads(source));
    const model = await openGGUF(source, { signal: controller.signal });
    current?.model.close();
    current = { model, source };
    show(model, source, name);
    document.body.dataset.phase = "open";
    byId("model-name").focus();
  } catch (error) {
    source?.close();
    if (controller.signal.aborted) return; // another one is being opened
    document.body.dataset.phase = before;
    showAlert(explain(error));
  }
  byId("opening").textContent = "";
}

function show(model, source, name) {
  const summary = summarise(model.tensors.values());
  byId("report").hidden = false;
  byId("model-name").textContent = model.metadata.get("general.name") || name;
  byId("facts-line").textContent = factsLine(model, summary);
  document.title = `${byId("model-name").textContent} · Inspect a model`;
  showMap(model, summary);
  showReads(source);
  showTypes(summary);
  showLayers(summary);
  tensorTable.show(model);
  metadataTable.show(model);
  tokenPlayground.show(model);
}

function factsLine(model, { parameters, types, largest }) {
  const of = (key) => model.metadata.get(`${model.architecture}.${key}`);
  const facts = [
    model.architecture ?? "no architecture named",
    `${count(parameters)} parameters`,
    bytes(model.size) + (model.shards.length > 1 ? ` in ${model.shards.length} files` : ""),
    types[0] ? `mostly ${types[0].name}` : "",
    of("block_count") === undefined ? "" : plural(of("block_count"), "layer"),
    of("context_length") === undefined ? "" : `trained for ${plural(of("context_length"), "token")}`,
    largest ? `largest tensor ${largest.name}, ${bytes(largest.nbytes)}` : "",
  ];
  return facts.filter(Boolean).join(" · ");
}

function showAlert(text) {
  const icon = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  icon.setAttribute("class", "icon");
  icon.setAttribute("aria-hidden", "true");
  icon.innerHTML = '<use href="#icon-alert"/>';
  byId("alert-region").replaceChildren(element("div", { className: "strip alarm" }, icon, element("p", { textContent: text })));
}

/** The address in the field, or null after saying what is wrong with it. */
function chosenAddress() {
  const text = byId("address").value.trim();
  const url = URL.parse(text, location.href);
  let problem = "";
  if (!text) problem = "Paste the address of a GGUF file.";
  else if (!url) problem = "This is not a web address.";
  else if (!/^https?:$/.test(url.protocol)) problem = `The address begins with “${url.protocol}”; it must begin with https: or http:.`;
  byId("address-problem").textContent = problem;
  byId("address").setAttribute("aria-invalid", problem !== "");
  if (problem) byId("address").focus();
  return problem ? null : url.href;
}

function openAddress(url) {
  const name = decodeURIComponent(new URL(url).pathname.split("/").at(-1)) || "the file";
  return open(() => joined(shardURLs(url).map((one) => fromURL(one))), name);
}

function openFiles(files) {
  const sorted = [...files].sort((a, b) => a.name.localeCompare(b.name));
  if (sorted.length) open(() => joined(sorted.map(fromBlob)), sorted[0].name);
}

const joined = (sources) => (sources.length === 1 ? sources[0] : joinSources(sources));

/** Links to the models that are served beside this page; without a manifest there are none. */
async function offerServed() {
  const response = await fetch(SERVED).catch(() => null);
  const { models = [] } = response?.ok ? await response.json() : {};
  for (const { name, file, bytes: size } of models) {
    const link = element("button", { type: "button", className: "small", textContent: `${name}, ${bytes(size)}` });
    link.addEventListener("click", () => openAddress(new URL(file, SERVED).href));
    byId("served").append(link, " ");
  }
  byId("served").hidden = !models.length;
}

byId("opener").addEventListener("submit", (event) => {
  event.preventDefault();
  const url = chosenAddress();
  if (url) openAddress(url);
});
byId("files").addEventListener("change", ({ target }) => openFiles(target.files));
acceptDrops(openFiles);
startThemeButton();
offerServed();
const asked = new URLSearchParams(location.search).get("url");
if (asked) {
  byId("address").value = asked;
  byId("open").click();
}
document.body.dataset.started = "";
