/** The field in which messages are written. Enter sends; an Enter that ends a composed character does not. */

const SIZES_ITSELF = CSS.supports("field-sizing", "content");

export class Composer {
  #form = document.getElementById("composer");
  #field = document.getElementById("prompt");

  /** @param {{onSend: (text: string) => void, onStop: () => void, onClear: () => void, mayStop: () => boolean}} handlers */
  constructor({ onSend, onStop, onClear, mayStop }) {
    const send = () => {
      const text = this.#field.value.trim();
      if (!text || mayStop()) return;
      this.#field.value = "";
      this.#fit();
      onSend(text);
    };
    this.#form.addEventListener("submit", (event) => (event.preventDefault(), send()));
    this.#field.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      send();
    });
    this.#field.addEventListener("input", () => this.#fit());
    document.getElementById("stop").addEventListener("click", onStop);
    document.getElementById("clear").addEventListener("click", onClear);
    for (const suggestion of document.querySelectorAll("#suggestions button")) {
      suggestion.addEventListener("click", () => onSend(suggestion.textContent));
    }
  }

  focus() {
    this.#field.focus();
  }

  /** Firefox does not know `field-sizing` yet. */
  #fit() {
    if (SIZES_ITSELF) return;
    this.#field.style.height = "auto";
    this.#field.style.height = `${this.#field.scrollHeight + 2}px`;
  }
}
