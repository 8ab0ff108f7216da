/**
 * Waiting for what a queue was given, until it is done or the device is lost.
 *
 * Some browsers look only now and then at what has been finished (Firefox every 100 ms, bug 1870699), but also whenever
 * something is submitted. Whether this one does is measured, and if so, waiting goes with empty submits.
 */

const SLOW_MS = 20; // for an idle queue to say so; others take less than 1
const PAUSES_MS = [1, 2, 4]; // between submits; the last one is repeated

export class Completion {
  #queue;
  #pokes = false;
  #waiting = new Set(); // functions that reject a wait

  /** Whether this browser is made to look. */
  get pokes() {
    return this.#pokes;
  }

  /** How long an idle queue takes to say that it is idle. */
  latencyMs = 0;

  constructor(queue) {
    this.#queue = queue;
  }

  /** Decides how to wait; nothing else may be under way. */
  async measure() {
    await this.#idleMs(); // may begin just before the browser looks; the next wait begins right after
    this.latencyMs = await this.#idleMs();
    if (this.latencyMs <= SLOW_MS) return;
    this.#pokes = true;
    const pokedMs = await this.#idleMs();
    this.#pokes = false;
    // A machine may also be busy for a moment: what was slow before must be slow again.
    this.#pokes = 2 * pokedMs < Math.min(this.latencyMs, await this.#idleMs());
    if (this.#pokes) this.latencyMs = pokedMs;
  }

  async #idleMs() {
    const begun = performance.now();
    this.#queue.submit([]);
    await this.of(this.#queue.onSubmittedWorkDone());
    return performance.now() - begun;
  }

  /** What the promise gives, or the error of `fail`, whichever comes first. */
  of(promise) {
    return new Promise((resolve, reject) => {
      const wait = { reject, timer: undefined };
      this.#waiting.add(wait);
      const settled = () => {
        this.#waiting.delete(wait);
        clearTimeout(wait.timer);
      };
      promise.then(resolve, reject).finally(settled);
      if (this.#pokes) this.#poke(wait, 0);
    });
  }

  #poke(wait, count) {
    wait.timer = setTimeout(() => {
      this.#queue.submit([]);
      this.#poke(wait, count + 1);
    }, PAUSES_MS[Math.min(count, PAUSES_MS.length - 1)]);
  }

  /** Rejects all that wait now. */
  fail(error) {
    for (const { reject, timer } of this.#waiting) {
      clearTimeout(timer);
      reject(error);
    }
    this.#waiting.clear();
  }
}
