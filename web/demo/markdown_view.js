/** Shows parsed Markdown as DOM nodes. Text only ever becomes text nodes, so nothing a model writes can become markup. */

import { parseBlocks, parseSpans } from "./markdown.js";

const shownBlocks = new WeakMap(); // element -> JSON of the block that it shows

/** Makes `container` show `text`; elements of blocks that did not change stay, with their focus and selection. */
export function showMarkdown(container, text) {
  const blocks = parseBlocks(text);
  blocks.forEach((block, index) => {
    const key = JSON.stringify(block);
    const old = container.children[index];
    if (old && shownBlocks.get(old) === key) return;
    const element = old && growCode(old, block) ? old : blockElement(block);
    shownBlocks.set(element, key);
    if (element === old) return;
    if (old) old.replaceWith(element);
    else container.append(element);
  });
  while (container.children.length > blocks.length) container.lastElementChild.remove();
}

function growCode(figure, block) {
  if (block.type !== "code" || figure.dataset.language !== block.language) return false;
  figure.querySelector("code").textContent = block.text;
  return true;
}

function blockElement(block) {
  switch (block.type) {
    case "code":
      return codeFigure(block);
    case "list":
      return list(block);
    case "rule":
      return document.createElement("hr");
    default:
      return withSpans({ paragraph: "p", heading: "h4", quote: "blockquote" }[block.type], block.text);
  }
}

function list({ ordered, start, items }) {
  const element = document.createElement(ordered ? "ol" : "ul");
  if (ordered && start !== 1) element.start = start;
  for (const { text, blocks } of items) {
    const item = withSpans("li", text);
    item.append(...blocks.map(list));
    element.append(item);
  }
  return element;
}

function codeFigure({ language, text }) {
  const figure = document.createElement("figure");
  figure.className = "code";
  figure.dataset.language = language;
  const name = textElement("span", language || "text");
  const copy = textElement("button", "Copy");
  copy.type = "button";
  copy.className = "quiet small";
  copy.dataset.action = "copy-code";
  copy.setAttribute("aria-label", "Copy this code");
  const caption = document.createElement("figcaption");
  caption.append(name, copy);
  const pre = document.createElement("pre");
  pre.tabIndex = 0; // wide code scrolls, and must do so by keyboard too
  pre.setAttribute("role", "region");
  pre.setAttribute("aria-label", language ? `Code, ${language}` : "Code");
  pre.append(textElement("code", text));
  figure.append(caption, pre);
  return figure;
}

function withSpans(tag, text) {
  const element = document.createElement(tag);
  element.append(...parseSpans(text).map(spanNode));
  return element;
}

function spanNode(span) {
  if (span.type === "text") return document.createTextNode(span.text);
  if (span.type === "code") return textElement("code", span.text);
  const element = document.createElement(span.type);
  element.append(...span.spans.map(spanNode));
  return element;
}

function textElement(tag, text) {
  const element = document.createElement(tag);
  element.textContent = text;
  return element;
}
