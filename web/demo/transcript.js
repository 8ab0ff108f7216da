/** Shows the conversation: one article a message, in order. Streams at most once a frame, and follows the end. */

import { milliseconds, plural, speed } from "./format.js";
import { showMarkdown } from "./markdown_view.js";
import { speeds } from "./usage.js";

const WHO = { user: "You", assistant: "Model" };
const ENDED = { length: "reached the longest answer", cancelled: "stopped", failed: "failed" };
const NEAR_END_PX = 60;
const COPIED_MS = 1500;

export class Transcript {
  #list = document.getElementById("transcript");
  #scroller = document.getElementById("main");
  #latest = document.getElementById("latest");
  #template = document.getElementById("message-template");
  #messages = [];
  #frame = 0;
  #following = true;

  /** @param {{onAgain: () => void}} handlers */
  constructor({ onAgain }) {
    this.#list.addEventListener("click", ({ target }) => {
      const button = target.closest("[data-action]");
      if (button?.dataset.action === "again") onAgain();
      else if (button) this.#copy(button);
    });
    this.#scroller.addEventListener("scroll", () => this.#noticeScroll(), { passive: true });
    this.#latest.addEventListener("click", () => this.follow());
  }

  /** @param {import("./conversation.js").Message[]} messages  all of them, whatever was shown before */
  show(messages) {
    this.#messages = messages;
    this.#list.replaceChildren(...messages.map((message) => this.#article(message)));
    document.body.toggleAttribute("data-talk", messages.length > 0);
    this.follow();
  }

  /** The last message is being written; call `update` when it has grown. */
  startStreaming() {
    const article = this.#list.lastElementChild;
    article.classList.add("streaming");
    const waiting = document.createElement("p");
    waiting.className = "waiting";
    waiting.textContent = "Reading your message";
    article.querySelector(".body").replaceChildren(waiting);
    this.follow();
  }

  update() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#showBody(this.#list.lastElementChild, this.#messages.at(-1));
      if (this.#following) this.#toEnd();
    });
  }

  /** The last message is complete. */
  endStreaming() {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.#list.lastElementChild.replaceWith(this.#article(this.#messages.at(-1)));
    if (this.#following) this.#toEnd();
  }

  /** Goes to the end and stays there. */
  follow() {
    this.#following = true;
    this.#toEnd();
  }

  #article(message) {
    const article = this.#template.content.cloneNode(true).firstElementChild;
    article.classList.add(message.role);
    article.querySelector(".who").textContent = WHO[message.role];
    if (message.role === "assistant") article.querySelector(".outcome").textContent = outcome(message);
    else article.querySelector('[data-action="again"] span').textContent = "Try again";
    this.#showBody(article, message);
    return article;
  }

  #showBody(article, { role, content, ended, notes }) {
    const body = article.querySelector(".body");
    const hasWords = content.trim() !== "";
    if (hasWords && body.firstElementChild?.className === "waiting") body.replaceChildren();
    if (role === "user") body.replaceChildren(paragraph(content));
    else if (hasWords) showMarkdown(body, content);
    else if (ended) body.replaceChildren(paragraph(emptyAnswer(ended), "waiting"));
    if (ended && notes) body.after(...notes.map((note) => paragraph(note, "note")));
  }

  async #copy(button) {
    const text =
      button.dataset.action === "copy-code"
        ? button.closest("figure").querySelector("code").textContent
        : this.#messages[[...this.#list.children].indexOf(button.closest(".message"))].content;
    const label = button.querySelector("span") ?? button;
    const before = label.textContent;
    label.textContent = (await copyText(text)) ? "Copied" : "Not allowed";
    setTimeout(() => (label.textContent = before), COPIED_MS);
  }

  #noticeScroll() {
    const { scrollHeight, scrollTop, clientHeight } = this.#scroller;
    this.#following = scrollHeight - scrollTop - clientHeight < NEAR_END_PX;
    this.#latest.hidden = this.#following;
  }

  #toEnd() {
    this.#scroller.scrollTop = this.#messages.length ? this.#scroller.scrollHeight : 0;
    this.#latest.hidden = true;
  }
}

function outcome({ ended, usage }) {
  const { decode, firstMs } = speeds(usage);
  const parts = [
    usage && plural(usage.completionTokens, "token"),
    decode && `${speed(decode)} tokens/s`,
    firstMs && `first token after ${milliseconds(firstMs)}`,
    ENDED[ended],
  ];
  return parts.filter(Boolean).join(" · ");
}

function emptyAnswer(ended) {
  return ended === "cancelled" ? "Stopped before the first word." : "The model ended its answer without a word.";
}

/** Whether the text is now on the clipboard. It is out of reach in insecure contexts, or when the person refuses. */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

function paragraph(text, className = "") {
  const element = document.createElement("p");
  element.textContent = text;
  element.className = className;
  return element;
}
