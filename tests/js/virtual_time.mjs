// Time that passes only when a test lets it, as fast as the machine can: what waits is exact whatever the load.

export class VirtualTime {
  #now = 0;
  #timers = new Map(); // id -> {at, call, every}
  #nextId = 1;
  #real = {};

  /** Takes the place of the timers and of the clock until `uninstall`. */
  install() {
    const add = (call, ms = 0, every = 0) => {
      this.#timers.set(this.#nextId, { at: this.#now + Math.max(0, ms), call, every });
      return this.#nextId++;
    };
    const remove = (id) => this.#timers.delete(id);
    const fakes = {
      setTimeout: (call, ms) => add(call, ms),
      setInterval: (call, ms) => add(call, ms, ms),
      clearTimeout: remove,
      clearInterval: remove,
      performance: { now: () => this.#now },
    };
    for (const [name, fake] of Object.entries(fakes)) {
      this.#real[name] = Object.getOwnPropertyDescriptor(globalThis, name);
      Object.defineProperty(globalThis, name, { value: fake, configurable: true, writable: true });
    }
    return this;
  }

  uninstall() {
    for (const [name, descriptor] of Object.entries(this.#real)) Object.defineProperty(globalThis, name, descriptor);
  }

  get now() {
    return this.#now;
  }

  /** What a promise gives, letting time pass until it does. */
  async until(promise) {
    let settled = false;
    const done = promise.finally(() => {
      settled = true;
    });
    done.catch(() => {});
    for (;;) {
      await new Promise((resolve) => setImmediate(resolve)); // whatever can go on without time passing
      if (settled) return done;
      const [id, timer] = [...this.#timers].reduce((first, next) => (next[1].at < first[1].at ? next : first));
      this.#now = Math.max(this.#now, timer.at);
      if (timer.every) timer.at += timer.every;
      else this.#timers.delete(id);
      timer.call();
    }
  }

  async pass(ms) {
    await this.until(new Promise((resolve) => globalThis.setTimeout(resolve, ms)));
  }
}
