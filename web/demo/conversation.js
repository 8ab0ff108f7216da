/**
 * The conversation as data, kept in this browser. Knows nothing about the page or the engine.
 *
 * @typedef {{role: "user" | "assistant", content: string, ended?: "stop" | "length" | "cancelled" | "failed",
 *   usage?: object, notes?: string[]}} Message  the last three tell how an answer went; `usage` is the bridge's own
 */

import { keep, recall } from "./storage.js";

const KEY = "conversation";
const ROLES = ["user", "assistant"];

export class Conversation {
  /** @type {Message[]} */
  messages = recall(KEY, []).filter(isMessage);

  get isEmpty() {
    return this.messages.length === 0;
  }

  /** @returns {Message} the message as it is kept from now on; change it, then call `save` */
  add(role, content) {
    const message = { role, content };
    this.messages.push(message);
    return message;
  }

  /** Forgets the answer at the end, if there is one, so that the question before it can be asked again. */
  dropLastAnswer() {
    if (this.messages.at(-1)?.role === "assistant") this.messages.pop();
  }

  /** @returns {Message[]} what was there */
  clear() {
    const before = this.messages;
    this.messages = [];
    this.save();
    return before;
  }

  restore(messages) {
    this.messages = messages;
    this.save();
  }

  /** @returns {boolean} whether this browser kept it */
  save() {
    return keep(KEY, this.messages);
  }

  /**
   * Turns for a chat template: roles alternate, since many templates refuse anything else. Answers without text are left
   * out, and messages of one role in a row become one.
   * @returns {{role: string, content: string}[]}
   */
  turns() {
    const turns = [];
    for (const { role, content } of this.messages) {
      if (!content.trim()) continue;
      if (turns.at(-1)?.role === role) turns.at(-1).content += `\n\n${content}`;
      else turns.push({ role, content });
    }
    return turns;
  }
}

function isMessage(value) {
  return ROLES.includes(value?.role) && typeof value.content === "string";
}
