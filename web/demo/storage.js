/** Small JSON values kept in this browser. Storage may be switched off or full: then nothing is kept, and nothing breaks. */

const PREFIX = "bridge-demo.";

/** The kept value, or `fallback` when there is none or it is not readable. */
export function recall(key, fallback) {
  try {
    return JSON.parse(localStorage.getItem(PREFIX + key)) ?? fallback;
  } catch {
    return fallback;
  }
}

/** @returns {boolean} whether the value was kept */
export function keep(key, value) {
  try {
    localStorage.setItem(PREFIX + key, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}
