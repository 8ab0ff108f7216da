/** Small JSON values kept in this browser. Storage may be switched off or full: then nothing is kept, and nothing breaks. */

const PREFIX = "bridge-demo.";

/** The kept value, or `fallback` when there is none or it is of another kind (a text, an object, a list). */
export function recall(key, fallback) {
  try {
    const value = JSON.parse(localStorage.getItem(PREFIX + key));
    return kind(value) === kind(fallback) ? value : fallback;
  } catch {
    return fallback;
  }
}

const kind = (value) => Object.prototype.toString.call(value);

/** @returns {boolean} whether the value was kept */
export function keep(key, value) {
  try {
    localStorage.setItem(PREFIX + key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}
