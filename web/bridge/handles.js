/**
 * Handles of what a page has loaded beside the model: counted from 1 and never used twice in one bridge, each standing
 * for the engine's own. They end with the model they were loaded for.
 */
export class Handles {
  #name;
  #held = new Map();
  #last = 0;

  /** @param {string} name  as errors call the thing, such as `LoRA adapter` */
  constructor(name) {
    this.#name = name;
  }

  /**
   * @param {number} engineHandle @param {number} generation  of the model, see Runtimes
   * @returns {number} the page's handle
   */
  add(engineHandle, generation) {
    this.#held.set(++this.#last, { engineHandle, generation });
    return this.#last;
  }

  has(handle, generation) {
    return this.#held.get(handle)?.generation === generation;
  }

  /** The engine's handle. @throws {Error} for one that was never given, or that went with its model */
  engineHandle(handle, generation) {
    if (this.has(handle, generation)) return this.#held.get(handle).engineHandle;
    const isStale = this.#held.has(handle);
    throw new Error(`${this.#name} ${handle} is not loaded${isStale ? ' any more: load it again for this model' : ''}`);
  }

  remove(handle) {
    this.#held.delete(handle);
  }
}
