// Cache Storage in memory, which keeps an entry only when its body has come to its end, as browsers do.

export class FakeCaches {
  caches = new Map();
  /** Set to make a put fail after so many bytes: {after, name}. */
  quota = null;
  /** Set to make a method fail: its name. */
  broken = null;

  async has(name) {
    this.#check('has');
    return this.caches.has(name);
  }

  async open(name) {
    this.#check('open');
    if (!this.caches.has(name)) this.caches.set(name, new FakeCache(this));
    return this.caches.get(name);
  }

  check(method) {
    this.#check(method);
  }

  #check(method) {
    if (this.broken === method) throw new DOMException(`${method} is broken`, 'UnknownError');
  }
}

class FakeCache {
  entries = new Map();
  #storage;

  constructor(storage) {
    this.#storage = storage;
  }

  async match(request) {
    this.#storage.check('match');
    const entry = this.entries.get(String(request.url ?? request));
    return entry && new Response(entry.body, { status: entry.status, headers: entry.headers });
  }

  async put(url, response) {
    this.#storage.check('put');
    const chunks = [];
    let size = 0;
    for await (const chunk of response.body) {
      size += chunk.length;
      if (this.#storage.quota && size > this.#storage.quota.after) {
        throw new DOMException('no space left', this.#storage.quota.name ?? 'QuotaExceededError');
      }
      chunks.push(chunk);
    }
    this.entries.set(String(url), { body: concatenated(chunks), status: response.status, headers: new Headers(response.headers) });
  }

  async delete(url) {
    this.#storage.check('delete');
    return this.entries.delete(String(url));
  }

  async keys() {
    return [...this.entries.keys()].map((url) => ({ url }));
  }
}

/** One array of many. @param {Uint8Array[]} parts */
export function concatenated(parts) {
  const whole = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** Puts an empty Cache Storage into the global scope. */
export function installFakeCaches() {
  const caches = new FakeCaches();
  Object.defineProperty(globalThis, 'caches', { value: caches, configurable: true, writable: true });
  return caches;
}
