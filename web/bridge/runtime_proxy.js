import { errorFromMessage, WorkerFailure } from './failures.js';

const DISPOSE_MS = 800;
/** Events that prove a completion is moving: tokens, batches of the prompt, and the model's way to the CPU. */
const SIGNS_OF_LIFE = ['token', 'prefill', 'recovery'];

/**
 * The page's end of one engine: sends calls over a port and matches the answers to them.
 *
 * A port is a Worker, or the page's own engine behind the same few members (`postMessage`, `onmessage`, `terminate`).
 *
 * @typedef {{value: unknown, state?: object}} Reply
 * @typedef {{transfer?: Transferable[], onEvent?: (event: string, payload: object) => void,
 *   budgetMs?: number, stallMs?: number, labels?: object}} CallOptions  a budget of 0 waits without limit
 */
export class RuntimeProxy {
  #port;
  #release;
  #initTimer;
  #lastId = 0;
  #pending = new Map();
  #settleReady = {};
  #ready;
  #isReady = false;
  #isTerminated = false;
  #crash = null;
  #disposal = null;

  /**
   * @param {{port: Worker, release: () => void}} started
   * @param {{config: object, initMs?: number, isWorker: boolean}} options
   */
  constructor({ port, release }, { config, initMs = 0, isWorker }) {
    this.isWorker = isWorker;
    this.#port = port;
    this.#release = release;
    this.#ready = new Promise((resolve, reject) => {
      this.#settleReady = { resolve, reject };
    });
    this.#ready.catch(() => {});
    port.onmessage = ({ data }) => this.#receive(data);
    port.onerror = (event) => {
      event?.preventDefault?.();
      const crash = new WorkerFailure(event?.message || 'Bridge worker crashed', { crashed: true });
      // An error while nothing is asked of the worker need not be its end.
      if (this.#pending.size || !this.#isReady) this.#crash = crash;
      this.#fail(crash);
    };
    port.onmessageerror = () => this.#fail(new WorkerFailure('Bridge worker sent a message that could not be read'));
    if (initMs) this.#initTimer = setTimeout(() => this.#failInit(initMs), initMs);
    port.postMessage({ type: 'init', config });
  }

  /**
   * @param {string} method @param {unknown[]} args @param {CallOptions} [options]
   * @returns {Promise<Reply>}
   */
  call(method, args, options = {}) {
    if (this.#isReady) return this.#post(method, args, options);
    return this.#ready.then(() => this.#post(method, args, options));
  }

  /** Send and do not care about the answer. @param {string} method @param {unknown[]} args */
  notify(method, args) {
    this.call(method, args).catch(() => {});
  }

  cancel() {
    this.notify('cancel', []);
  }

  /** Ask the engine to let go, wait (a worker: 800 ms at most), then end it. */
  dispose() {
    this.#disposal ??= this.#tearDown();
    return this.#disposal;
  }

  async #tearDown() {
    if (this.#isReady) {
      const answered = this.#post('dispose', [], {}).catch(() => {});
      await (this.isWorker ? withinMs(answered, DISPOSE_MS) : answered);
    }
    this.#fail(new WorkerFailure('Bridge worker disposed'));
    this.#terminate();
    this.#release();
  }

  #terminate() {
    if (this.#isTerminated) return;
    this.#isTerminated = true;
    this.#port.terminate();
  }

  #post(method, args, { transfer = [], onEvent = () => {}, budgetMs = 0, stallMs = 0, labels = {} }) {
    if (this.#isTerminated) return Promise.reject(new WorkerFailure('Bridge worker disposed'));
    if (this.#crash) return Promise.reject(this.#crash);
    const id = ++this.#lastId;
    return new Promise((resolve, reject) => {
      const call = { resolve, reject, onEvent, method, budgetMs, stallMs };
      this.#pending.set(id, call);
      try {
        this.#port.postMessage({ type: 'call', id, method, args, ...labels }, transfer);
      } catch (error) {
        this.#pending.delete(id);
        reject(error);
        return;
      }
      if (this.#pending.has(id)) this.#arm(id, call, { budget: true, stall: true });
    });
  }

  #receive(message) {
    if (message?.type === 'ready') {
      clearTimeout(this.#initTimer);
      this.#isReady = !this.#isTerminated;
      this.#settleReady.resolve();
      return;
    }
    const call = this.#pending.get(message?.id);
    if (!call) return;
    if (message.type === 'event') {
      this.#arm(message.id, call, { budget: true, stall: SIGNS_OF_LIFE.includes(message.event) });
      call.onEvent(message.event, message.payload ?? {});
      return;
    }
    this.#take(message.id);
    if (message.type === 'error') call.reject(errorFromMessage(message));
    else call.resolve({ value: message.value, state: message.state });
  }

  #arm(id, call, { budget, stall }) {
    if (budget && call.budgetMs) {
      clearTimeout(call.budgetTimer);
      call.budgetTimer = setTimeout(() => {
        const text = `Worker request timeout (${call.method}, ${call.budgetMs}ms)`;
        this.#take(id)?.reject(new WorkerFailure(text, { timedOut: true }));
      }, call.budgetMs);
    }
    if (stall && call.stallMs) {
      clearTimeout(call.stallTimer);
      call.stallTimer = setTimeout(() => {
        const text = `Bridge worker completion stalled for ${call.stallMs}ms.`;
        this.#take(id)?.reject(new WorkerFailure(text, { timedOut: true }));
        this.cancel();
      }, call.stallMs);
    }
  }

  #take(id) {
    const call = this.#pending.get(id);
    this.#pending.delete(id);
    clearTimeout(call?.budgetTimer);
    clearTimeout(call?.stallTimer);
    return call;
  }

  #failInit(initMs) {
    this.#fail(new WorkerFailure(`Bridge worker init timeout (${initMs}ms)`, { timedOut: true }));
    this.#terminate();
  }

  #fail(error) {
    clearTimeout(this.#initTimer);
    this.#settleReady.reject(error);
    for (const id of [...this.#pending.keys()]) this.#take(id).reject(error);
  }
}

function withinMs(promise, ms) {
  let timer;
  const timeout = new Promise((resolve) => {
    timer = setTimeout(resolve, ms);
  });
  return Promise.race([promise, timeout]).finally(() => clearTimeout(timer));
}
