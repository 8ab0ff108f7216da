/** Speaks to screen readers. An answer is read in whole sentences, every few seconds, not token by token. */

const region = document.getElementById("announcer");
const EVERY_MS = 3000;
const SENTENCES = /^[\s\S]*[.!?:…\n](?=\s|$)/;

export function announce(text) {
  region.textContent = text;
}

export class SpokenAnswer {
  #pending = "";
  #timer = setInterval(() => this.#speak(), EVERY_MS);

  add(piece) {
    this.#pending += piece;
  }

  /** Speaks what is left, and says so when the answer did not end by itself. */
  end(remark = "") {
    clearInterval(this.#timer);
    announce(`${this.#pending} ${remark}`.trim());
  }

  #speak() {
    const sentences = this.#pending.match(SENTENCES)?.[0];
    if (!sentences) return;
    announce(sentences.trim());
    this.#pending = this.#pending.slice(sentences.length);
  }
}
