/**
 * The CPU backend's machine as the Python engine drives it (bridge/simd/js_host.py): one WebAssembly memory with the
 * kernels on it, and a team of workers that sleep between jobs. Knows nothing about models.
 *
 * In a worker the caller is thread 0 and blocks while a job runs; on a page's own thread, which may not block, all
 * threads are workers and the caller awaits their message, or, without shared memory, computes alone.
 */

import { macrotask, upload } from './simd_upload.js';

const PAGE = 65536;
const PAGES_32 = [65536, 32768, 16384]; // some browsers refuse to set 4 GiB of addresses aside
const PAGES_64 = [262144, 131072];
const MODULE_BYTES = 1 << 20; // bridge/simd/host.py has these three, too
const STACK_BYTES = 1 << 16;
const MAX_BYTES_32 = 65535 * PAGE;
const SPARE_FACTOR = 2; // a memory more than this much larger than needed is given back
const SPARE_BYTES = 256 << 20;
const UNKNOWN_CORES = 4;
const DEFAULT_POOL = 8;
const DONE = 'done';
/** A module with one function, () => v128, which is i8x16.relaxed_swizzle of two constants. */
const RELAXED_SWIZZLE = new Uint8Array([
  0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0,
  10, 15, 1, 13, 0, 65, 1, 253, 15, 65, 2, 253, 15, 253, 128, 2, 11,
]);

/** `code`: "UNSUPPORTED" where the browser lacks something, else "DEVICE_FAILED". */
export class SimdHostError extends Error {
  name = 'SimdHostError';

  constructor(message, code = 'DEVICE_FAILED') {
    super(message);
    this.code = code;
  }
}

/**
 * @param {string} options  JSON of
 * @param {number | null} pool  threads to have, at most one per core (null: one per core, at most 8); without
 *   cross-origin isolation there is but the caller's own
 * @param {boolean | null} [memory64]  64-bit addresses, where the browser has them: for all models, for none, or (null)
 *   for those that need more than 4 GiB
 * @param {string} [base]  folder of the .wasm files
 * @returns {Promise<SimdHost>}
 */
export async function openHost(options) {
  const { pool, memory64 = null, base = new URL('../simd/', import.meta.url).href } = JSON.parse(options);
  const isolated = globalThis.crossOriginIsolated === true && typeof SharedArrayBuffer === 'function';
  const cores = navigator.hardwareConcurrency || UNKNOWN_CORES;
  const threads = isolated ? Math.min(pool ?? DEFAULT_POOL, cores) : 1;
  const host = new SimdHost({ threads, isolated, memory64: isolated ? memory64 : false, base });
  await host.open();
  return host;
}

class SimdHost {
  #threads;
  #isolated;
  #allows64;
  #always64;
  #base;
  #onPage = typeof document !== 'undefined';
  #modules = new Map(); // name -> promise of a WebAssembly.Module
  #variant = '';
  #bits = 32;
  #memory = null;
  #exports = null;
  #workers = [];
  #dotMode = 0;
  #upload = null;
  #failure = null;
  #finished = null; // resolves the run that waits for thread 0
  #counters = { memory_bytes: 0, memories: 0, threads: 0, runs: 0 };

  constructor({ threads, isolated, memory64, base }) {
    this.#threads = threads;
    this.#isolated = isolated;
    this.#allows64 = memory64 !== false && supportsMemory64();
    this.#always64 = this.#allows64 && memory64 === true;
    this.#base = base;
  }

  async open() {
    await this.#start(this.#always64 ? 64 : 32);
  }

  /** What Python needs to know, as JSON. */
  describe() {
    return JSON.stringify({
      variant: this.#variant,
      n_threads: this.#threads,
      is_shared: this.#isolated,
      max_bytes: this.#allows64 ? PAGES_64[0] * PAGE : MAX_BYTES_32,
      edition: (this.#exports.edition?.() ?? 0) >>> 0,
      has_relaxed: this.#variant.startsWith('relaxed'),
      dot_mode: this.#dotMode,
    });
  }

  counters() {
    const memoryBytes = this.#memory?.buffer.byteLength ?? 0;
    return JSON.stringify({ ...this.#counters, threads: this.#workers.length, memory_bytes: memoryBytes });
  }

  /** Makes the memory at least that large; it may be the last model's, with what that left in it. */
  async reserve(nbytes) {
    this.#throwIfFailed();
    const bits = this.#always64 || nbytes > MAX_BYTES_32 ? 64 : 32;
    const held = this.#memory?.buffer.byteLength ?? 0;
    const spare = held > SPARE_BYTES && held > SPARE_FACTOR * nbytes;
    if (!this.#memory || bits !== this.#bits || spare) await this.#start(bits);
    while (this.#exports.retire_job()) await macrotask(); // one may still be looking at the program of the last model
    const missing = Math.ceil((nbytes - this.#memory.buffer.byteLength) / PAGE);
    if (missing <= 0) return;
    try {
      this.#memory.grow(this.#bits === 64 ? BigInt(missing) : missing);
    } catch {
      const now = mebibytes(this.#memory.buffer.byteLength);
      this.#stop();
      throw new SimdHostError(`the browser refused to enlarge the memory from ${now} to ${mebibytes(nbytes)}`);
    }
  }

  /** @param {Uint8Array} bytes */
  write(address, bytes) {
    this.#view(address, bytes.length).set(bytes);
  }

  read(address, nbytes) {
    return this.#view(address, nbytes).slice();
  }

  /**
   * Streams a file into the memory, by way of the staging area at `staging`.
   *
   * @param {{stream: Function}} source  of byte_source.js
   * @param {string} plan  JSON, see simd_upload.js
   * @param {(position: number) => void} onProgress
   */
  async upload(source, staging, plan, onProgress) {
    this.#throwIfFailed();
    const abort = (this.#upload = new AbortController());
    const memory = {
      stage: (at, bytes) => this.write(staging + at, bytes),
      take: (span, done, count) => this.#take(staging, span, done, count),
    };
    await upload(source, JSON.parse(plan), memory, abort.signal, onProgress);
  }

  abortUpload() {
    this.#upload?.abort();
  }

  /**
   * One job (bridge/simd/host.py) on `nThreads` threads.
   *
   * @param {string} job  JSON
   * @param {Uint8Array} params
   */
  async run(job, params, nThreads) {
    this.#throwIfFailed();
    const { program, n_ops, mail, params: to, scratch, scratch_units } = JSON.parse(job);
    this.write(mail * 16, params);
    this.#counters.runs += 1;
    const call = [program, n_ops, mail, to, scratch, scratch_units, nThreads];
    if (this.#onPage && this.#isolated) {
      await this.#runElsewhere(call);
    } else {
      await macrotask();
      this.#throwIfFailed();
      if (this.#guard(() => this.#exports.run(...call))) throw this.#failed('a thread of the CPU backend failed');
    }
  }

  /** Rows of the last run's result, a view that is valid until the next one; they begin `rowStride` bytes apart. */
  rows(address, rowBytes, rowStride, nRows) {
    if (nRows === 1 || rowBytes === rowStride) return this.#view(address, nRows * rowBytes);
    const rows = new Uint8Array(nRows * rowBytes);
    for (let i = 0; i < nRows; i++) rows.set(this.#view(address + i * rowStride, rowBytes), i * rowBytes);
    return rows;
  }

  /** The first of the largest of `n` numbers at `address`, or -1; see kernels/simd/select.c. */
  bestToken(address, n) {
    return this.#guard(() => this.#exports.best_token(this.#address(address), n));
  }

  /**
   * The `k` largest of `n` numbers at `address`, by way of the memory at `to`: their indices, themselves, and behind
   * them the numbers with the indices `also` (JSON). Null where they cannot be told.
   */
  topTokens(address, n, k, to, also) {
    if (!this.#guard(() => this.#exports.top_tokens(this.#address(address), n, k, this.#address(to)))) return null;
    const wanted = JSON.parse(also);
    const found = new Uint8Array(8 * k + 4 * wanted.length);
    found.set(this.#view(to, 8 * k));
    wanted.forEach((index, i) => found.set(this.#view(address + 4 * index, 4), 8 * k + 4 * i));
    return found;
  }

  /** The model is gone. The memory stays for the next one. */
  release() {
    this.#upload?.abort();
  }

  /** Ends the threads and forgets the memory. */
  close() {
    this.#failure ??= 'the CPU backend was closed';
    this.#upload?.abort();
    this.#stop();
    this.#modules.clear();
  }

  async #start(bits) {
    this.#stop();
    const { name, module } = await this.#compile(bits);
    this.#memory = this.#makeMemory(bits);
    this.#bits = bits;
    this.#variant = name;
    this.#counters.memories += 1;
    const instance = await WebAssembly.instantiate(module, { env: { memory: this.#memory } });
    this.#exports = instance.exports;
    this.#dotMode = this.#exports.probe_dots(0);
    if (this.#isolated) await this.#startThreads(module);
  }

  /** The best module that this browser takes. */
  async #compile(bits) {
    const suffix = `${bits === 64 ? '64' : ''}${this.#isolated ? '-threads' : ''}`;
    const names = bits === 64 ? [`relaxed${suffix}`] : [`relaxed${suffix}`, `simd${suffix}`];
    let reason;
    for (const name of names) {
      try {
        if (!this.#modules.has(name)) this.#modules.set(name, compileFile(new URL(`${name}.wasm`, this.#base)));
        return { name, module: await this.#modules.get(name) };
      } catch (error) {
        this.#modules.delete(name);
        if (!(error instanceof WebAssembly.CompileError)) throw error;
        reason = error;
      }
    }
    const message = `this browser cannot run the CPU kernels, which need WebAssembly SIMD: ${reason.message}`;
    throw new SimdHostError(message, 'UNSUPPORTED');
  }

  #makeMemory(bits) {
    const pages = MODULE_BYTES / PAGE;
    for (const maximum of bits === 64 ? PAGES_64 : PAGES_32) {
      const shared = this.#isolated;
      try {
        return bits === 64
          ? new WebAssembly.Memory({ initial: BigInt(pages), maximum: BigInt(maximum), shared, address: 'i64' })
          : new WebAssembly.Memory({ initial: pages, maximum, shared });
      } catch (error) {
        if (!(error instanceof RangeError)) throw error;
      }
    }
    throw new SimdHostError('the browser has no address space left for the memory of a model');
  }

  async #startThreads(module) {
    const first = this.#onPage ? 0 : 1;
    const ready = [];
    for (let number = first; number < this.#threads; number++) {
      const worker = startThread(`bridge thread ${number}`);
      this.#workers.push(worker);
      const stackTop = this.#address(MODULE_BYTES + STACK_BYTES * (number + 1));
      worker.postMessage({ module, memory: this.#memory, number, stackTop });
      ready.push(new Promise((resolve, reject) => {
        worker.onmessage = ({ data }) => (data === DONE ? this.#finished?.resolve() : resolve());
        worker.onerror = (event) => {
          event.preventDefault();
          const reason = event.message || 'it could not be started';
          const error = this.#failed(`a thread of the CPU backend failed: ${reason}`);
          this.#finished?.reject(error);
          reject(error);
        };
      }));
    }
    await Promise.all(ready);
  }

  /** Lets the threads compute and waits for their message, for at most one job at a time. */
  async #runElsewhere(call) {
    const done = new Promise((resolve, reject) => (this.#finished = { resolve, reject }));
    this.#exports.post_job(...call);
    await done;
    this.#finished = null;
    // The thread's own message may still be on its way.
    if (this.#exports.has_failed()) throw this.#failed('a thread of the CPU backend failed');
  }

  #stop() {
    for (const worker of this.#workers) worker.terminate();
    this.#workers = [];
    this.#finished?.reject(new SimdHostError('the CPU backend was closed while it computed'));
    this.#finished = null;
    this.#memory = null;
    this.#exports = null;
  }

  #take(staging, span, done, count) {
    const { target, step, row } = span;
    const from = this.#address(staging);
    this.#guard(() => {
      if (target.n_in === undefined) {
        this.#exports.widen_vector(target.layout, from, count / row, target.to, done / row);
      } else {
        const { layout, type_id, block_size, type_size, grid, n_in, to } = target;
        this.#exports.repack(layout, type_id, block_size, type_size, grid, from, count / row, n_in, to, done / step);
      }
    });
  }

  #guard(compute) {
    try {
      return compute();
    } catch (error) {
      if (!(error instanceof WebAssembly.RuntimeError)) throw error;
      throw this.#failed(`the CPU kernels failed: ${error.message}`);
    }
  }

  #failed(message) {
    this.#failure ??= message;
    return new SimdHostError(this.#failure);
  }

  /** As the kernels take it. */
  #address(address) {
    return this.#bits === 64 ? BigInt(address) : address;
  }

  #view(address, nbytes) {
    return new Uint8Array(this.#memory.buffer, address, nbytes);
  }

  #throwIfFailed() {
    if (this.#failure) throw new SimdHostError(this.#failure);
  }
}

const THREAD_SCRIPT = new URL('simd_thread.js', import.meta.url).href;
let threadBlob = null; // made once, where the script is of another origin

function startThread(name) {
  try {
    return new Worker(THREAD_SCRIPT, { type: 'module', name });
  } catch (error) {
    if (error.name !== 'SecurityError') throw error;
    const source = `import ${JSON.stringify(THREAD_SCRIPT)};`;
    threadBlob ??= URL.createObjectURL(new Blob([source], { type: 'text/javascript' }));
    return new Worker(threadBlob, { type: 'module', name });
  }
}

/** Whether the build with 64-bit addresses runs here, which has shared memory and relaxed SIMD. */
function supportsMemory64() {
  try {
    return new WebAssembly.Memory({ initial: 1n, maximum: 1n, shared: true, address: 'i64' }).grow(0n) === 1n
      && WebAssembly.validate(RELAXED_SWIZZLE);
  } catch {
    return false;
  }
}

async function compileFile(url) {
  const response = await fetch(url);
  if (!response.ok) throw new SimdHostError(`the CPU kernels could not be fetched (status ${response.status})`);
  return WebAssembly.compile(await response.arrayBuffer());
}

const mebibytes = (nbytes) => `${Math.ceil(nbytes / (1 << 20))} MiB`;
