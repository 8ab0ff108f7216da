// As much of node:test as the suites of tests/js use, so that the same files run in a page.

const tests = [];
const hooks = [];

export function test(title, ...rest) {
  const run = rest.pop();
  const [{ skip = false } = {}] = rest;
  tests.push({ title, run, skip });
}

export const beforeEach = (hook) => hooks.push(hook);

function methodMock(object, name) {
  const original = object[name];
  const calls = [];
  const replacement = function (...args) {
    calls.push({ arguments: args });
    return original.apply(this, args);
  };
  object[name] = replacement;
  replacement.mock = { calls, callCount: () => calls.length, restore: () => (object[name] = original) };
  return replacement;
}

/** Timers that run when the test says so. */
class Timers {
  #real = null;
  #now = 0;
  #lastId = 0;
  #waiting = new Map();

  enable() {
    this.#real = { setTimeout: globalThis.setTimeout, clearTimeout: globalThis.clearTimeout };
    globalThis.setTimeout = (call, ms = 0, ...args) => {
      this.#waiting.set(++this.#lastId, { at: this.#now + ms, run: () => call(...args) });
      return this.#lastId;
    };
    globalThis.clearTimeout = (id) => this.#waiting.delete(id);
  }

  tick(ms) {
    const end = this.#now + ms;
    for (;;) {
      const [next] = [...this.#waiting].filter(([, { at }]) => at <= end).sort(([, a], [, b]) => a.at - b.at);
      if (!next) break;
      const [id, { at, run }] = next;
      this.#waiting.delete(id);
      this.#now = at;
      run();
    }
    this.#now = end;
  }

  restore() {
    if (this.#real) Object.assign(globalThis, this.#real);
  }
}

export const mock = { method: methodMock };

/** Runs what the imported files registered. @returns {Promise<{title: string, error: string | null, skip: boolean}[]>} */
export async function runTests() {
  const outcomes = [];
  for (const { title, run, skip } of tests.splice(0)) {
    const timers = new Timers();
    const restored = [];
    const method = (...args) => {
      const mocked = methodMock(...args);
      restored.push(mocked.mock.restore);
      return mocked;
    };
    let error = null;
    if (!skip) {
      try {
        for (const hook of hooks) await hook();
        await run({ mock: { timers, method } });
      } catch (thrown) {
        error = String(thrown?.stack ?? thrown);
      }
    }
    timers.restore();
    for (const restore of restored) restore();
    outcomes.push({ title, error, skip: Boolean(skip) });
  }
  hooks.length = 0;
  return outcomes;
}
