const PROGRESS_MS = 50;

/** At most one report every PROGRESS_MS. */
export class ProgressMeter {
  #report;
  #last = -Infinity;

  constructor(report) {
    this.#report = report;
  }

  report(position) {
    const now = performance.now();
    if (now - this.#last < PROGRESS_MS) return;
    this.#last = now;
    this.#report(position);
  }
}
