/** Figures as people read them. Sizes are decimal (1 MB = 1,000,000 bytes), as browsers and download pages count. */

const UNITS = ["bytes", "kB", "MB", "GB", "TB"];
const whole = new Intl.NumberFormat("en");

/** 98362432 -> "98.4 MB", which never breaks across lines */
export function bytes(count) {
  const power = count < 1000 ? 0 : Math.min(Math.floor(Math.log10(count) / 3), UNITS.length - 1);
  const value = count / 1000 ** power;
  return `${power === 0 ? value : value.toFixed(power === 1 ? 0 : 1)}\u00a0${UNITS[power]}`;
}

/** 49152 -> "49,152" */
export function integer(count) {
  return whole.format(Math.round(count));
}

/** 134.3 -> "134", 11.24 -> "11.2", 0.53 -> "0.53" */
export function speed(perSecond) {
  return perSecond.toFixed(perSecond >= 100 ? 0 : perSecond >= 1 ? 1 : 2);
}

/** Milliseconds as "0.42 s", "12.3 s" or "2 min 5 s". */
export function milliseconds(ms) {
  const seconds = ms / 1000;
  if (seconds >= 60) return duration(seconds);
  return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
}

/** Whole seconds as "5 s", "2 min 5 s" or "1 h 10 min". */
export function duration(seconds) {
  const total = Math.max(0, Math.round(seconds));
  if (total < 60) return `${total} s`;
  if (total < 3600) return `${Math.floor(total / 60)} min ${total % 60} s`;
  return `${Math.floor(total / 3600)} h ${Math.round((total % 3600) / 60)} min`;
}

/** "1 token", "2 tokens" */
export function plural(count, noun) {
  return `${integer(count)} ${noun}${count === 1 ? "" : "s"}`;
}
