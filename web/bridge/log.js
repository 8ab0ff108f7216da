import { clampLogLevel, engineConfig } from './config.js';

const WARNING_LEVELS = [1, 2, 3];
const DEFAULT_WINDOW_MS = 5000;

/** The bridge's own warnings, to `config.logger` or the console; the same text is not repeated within a few seconds. */
export class Log {
  #logger;
  #windowMs;
  #lastShown = new Map();

  /** @param {Record<string, any>} config */
  constructor(config) {
    this.level = engineConfig(config).logLevel;
    this.#logger = typeof config.logger?.warn === 'function' ? config.logger : null;
    const windowMs = config.warnDedupWindowMs;
    this.#windowMs = windowMs > 0 ? Math.min(Math.max(windowMs, 500), 60000) : DEFAULT_WINDOW_MS;
  }

  /** Takes a finite number; other values are accepted and change nothing. @param {string | number} level */
  setLevel(level) {
    if (Number.isFinite(level)) this.level = clampLogLevel(level);
  }

  /** @param {string} text */
  warn(text) {
    if (!WARNING_LEVELS.includes(this.level)) return;
    const now = Date.now();
    if (now - (this.#lastShown.get(text) ?? -Infinity) < this.#windowMs) return;
    this.#lastShown.set(text, now);
    (this.#logger ?? console).warn(text);
  }

  /** @param {string} text @param {unknown} cause */
  error(text, cause) {
    if (this.level !== 0) (this.#logger?.error ? this.#logger : console).error(text, cause);
  }
}
