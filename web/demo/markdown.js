/**
 * The Markdown that models write in answers: paragraphs, headings, lists, quotes, rules, code, bold and italics.
 *
 * Knows nothing about the page: text goes in, plain objects come out. HTML in the text is text like any other.
 *
 * @typedef {{type: "text" | "code", text: string} | {type: "strong" | "em", spans: Span[]}} Span
 * @typedef {{text: string, blocks: Block[]}} Item  `blocks` holds the lists nested in it
 * @typedef {{type: "paragraph" | "heading" | "quote", text: string} | {type: "rule"}
 *   | {type: "code", language: string, text: string}
 *   | {type: "list", ordered: boolean, start: number, items: Item[]}} Block
 */

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^`\s]*)[^`]*$/;
const HEADING = /^ {0,3}#{1,6}\s+(.*?)\s*#*$/;
const RULE = /^ {0,3}([-*_])(\s*\1){2,}\s*$/;
const ITEM = /^(\s*)([-*+•]|\d{1,9}[.)])\s+(.*)$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const BLANK = /^\s*$/;

/** @returns {Block[]} an unfinished code block, as while an answer streams, reaches to the end of the text */
export function parseBlocks(text) {
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  const blocks = [];
  for (let at = 0; at < lines.length; ) {
    const take = TAKERS.find(([starts]) => starts.test(lines[at]))[1];
    at = take(lines, at, blocks);
  }
  return blocks;
}

/** Each taker reads one block that begins at line `at`, adds it to `blocks` and returns the line after it. */
const TAKERS = [
  [BLANK, (lines, at) => at + 1],
  [FENCE, takeCode],
  [HEADING, takeLine("heading", HEADING)],
  [RULE, (lines, at, blocks) => (blocks.push({ type: "rule" }), at + 1)],
  [QUOTE, takeQuote],
  [ITEM, takeList],
  [/^/, takeParagraph],
];

function takeLine(type, pattern) {
  return (lines, at, blocks) => (blocks.push({ type, text: lines[at].match(pattern)[1] }), at + 1);
}

function takeCode(lines, at, blocks) {
  const [, fence, language] = lines[at].match(FENCE);
  const closes = (line) => line.trim().startsWith(fence) && /^(`+|~+)$/.test(line.trim());
  let end = at + 1;
  while (end < lines.length && !closes(lines[end])) end++;
  blocks.push({ type: "code", language, text: lines.slice(at + 1, end).join("\n") });
  return end + 1;
}

function takeQuote(lines, at, blocks) {
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) end++;
  blocks.push({ type: "quote", text: lines.slice(at, end).map((line) => line.match(QUOTE)[1]).join("\n") });
  return end;
}

function takeParagraph(lines, at, blocks) {
  let end = at + 1;
  const goesOn = (line) => [BLANK, FENCE, HEADING, RULE, QUOTE, ITEM].every((other) => !other.test(line));
  while (end < lines.length && goesOn(lines[end])) end++;
  blocks.push({ type: "paragraph", text: lines.slice(at, end).join("\n").trim() });
  return end;
}

function takeList(lines, at, blocks) {
  const [, indent, marker] = lines[at].match(ITEM);
  const list = newList(marker);
  const width = indent.length;
  while (at < lines.length) {
    const item = lines[at].match(ITEM);
    if (item && item[1].length >= width + 2 && list.items.length) {
      at = takeList(lines, at, list.items.at(-1).blocks);
    } else if (item && item[1].length >= width && newList(item[2]).ordered === list.ordered) {
      list.items.push({ text: item[3], blocks: [] });
      at++;
    } else if (!item && /^\s/.test(lines[at]) && !BLANK.test(lines[at])) {
      list.items.at(-1).text += `\n${lines[at++].trim()}`;
    } else if (BLANK.test(lines[at]) && continues(lines[at + 1], width, list.ordered)) {
      at++; // a blank line between two items of the same list
    } else {
      break;
    }
  }
  blocks.push(list);
  return at;
}

function newList(marker) {
  const ordered = /\d/.test(marker);
  return { type: "list", ordered, start: ordered ? parseInt(marker, 10) : 1, items: [] };
}

function continues(line, width, ordered) {
  const item = line?.match(ITEM);
  return item && item[1].length >= width && (item[1].length >= width + 2 || newList(item[2]).ordered === ordered);
}

/** @returns {Span[]} */
export function parseSpans(text) {
  const spans = [];
  const unclosed = new Set(); // delimiters known to have no partner further on, so that each is searched for once
  let plainFrom = 0;
  let at = 0;
  while (at < text.length) {
    const found = text[at] === "`" ? codeAt(text, at, unclosed) : text[at] === "*" ? emphasisAt(text, at, unclosed) : null;
    if (!found) {
      at += text[at] === "`" || text[at] === "*" ? runLength(text, at) : 1;
      continue;
    }
    if (at > plainFrom) spans.push({ type: "text", text: text.slice(plainFrom, at) });
    spans.push(found.span);
    at = plainFrom = found.end;
  }
  if (text.length > plainFrom) spans.push({ type: "text", text: text.slice(plainFrom) });
  return spans;
}

function codeAt(text, at, unclosed) {
  const fence = "`".repeat(runLength(text, at));
  const inner = closing(text, fence, at + fence.length, unclosed);
  return inner === null ? null : { span: { type: "code", text: inner.trim() }, end: at + inner.length + 2 * fence.length };
}

function emphasisAt(text, at, unclosed) {
  const marks = "*".repeat(Math.min(runLength(text, at), 2));
  let inner = closing(text, marks, at + marks.length, unclosed);
  if (inner === null || /^\s|\s$/.test(inner)) return null;
  if (inner.startsWith("*") && text[at + inner.length + 2 * marks.length] === "*") inner += "*"; // ***both***
  const end = at + inner.length + 2 * marks.length;
  const insideWord = /[\p{L}\p{N}]/u.test(text[at - 1] ?? "") || /[\p{L}\p{N}]/u.test(text[end] ?? "");
  if (marks === "*" && insideWord) return null; // 2*3*4 is a product
  return { span: { type: marks === "**" ? "strong" : "em", spans: parseSpans(inner) }, end };
}

/** The text between `from` and the next `mark`, or null when there is none or nothing is in between. */
function closing(text, mark, from, unclosed) {
  if (unclosed.has(mark)) return null;
  const end = text.indexOf(mark, from);
  if (end < 0) unclosed.add(mark);
  return end > from ? text.slice(from, end) : null;
}

function runLength(text, at) {
  let end = at;
  while (text[end] === text[at]) end++;
  return end - at;
}
