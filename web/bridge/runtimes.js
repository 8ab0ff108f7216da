import { initBudgetMs, requestBudgetMs, stallBudgetMs } from './budgets.js';
import { engineConfig } from './config.js';
import { errorText, isAnswer, isRecoverableByRestart, isWorkerUnusable, mayRunOnMainThread } from './failures.js';
import { METHOD_RULES } from './operations.js';
import { pageUrl } from './page_urls.js';
import { RuntimeProxy } from './runtime_proxy.js';
import { holdsModel, MODEL_BYTES_KEY } from './snapshot.js';
import { canUseWorker, startWorker } from './worker_port.js';

const FALLBACK_REASON_KEY = 'llamadart.webgpu.worker_fallback_reason';
const NOTES_KEY = 'llamadart.webgpu.runtime_notes';

/**
 * One queued call, ready to be sent as often as recovery needs it.
 *
 * @typedef {{method: string, message: () => {args: unknown[], transfer?: Transferable[]},
 *   onEvent?: (event: string, payload: any) => void, onUsage?: (usage: any) => void,
 *   remember?: {source: string | string[], options: object}}} Request  `remember`: the model this load brings
 */

/**
 * The engines behind one bridge: a worker while it serves, the page's own thread after it fails or when none is wanted.
 *
 * Runs every request on the current one; decides restarts, the move to the main thread and the reload that goes with it.
 */
export class Runtimes {
  #config;
  #bridgeUrl;
  #openDirectPort;
  #log;
  #snapshot;
  /** @type {RuntimeProxy | null} */
  #worker = null;
  /** @type {RuntimeProxy | null} */
  #direct = null;
  /** The last loaded model, as the request that brought it. @type {Request['remember'] | null} */
  #model = null;
  #retired = [];
  #workerGeneration = 0;
  /** Counts the models; what was loaded beside one of them is gone with it. */
  modelGeneration = 0;
  #fallbackReason = null;
  #notes = [];

  /**
   * @param {{config: Record<string, any>, bridgeUrl: string, openDirectPort: () => {port: any, release: () => void},
   *   log: import('./log.js').Log, snapshot: import('./snapshot.js').Snapshot}} parts
   */
  constructor({ config, bridgeUrl, openDirectPort, log, snapshot }) {
    this.#config = config;
    this.#bridgeUrl = bridgeUrl;
    this.#openDirectPort = openDirectPort;
    this.#log = log;
    this.#snapshot = snapshot;
    if (!canUseWorker(config)) return;
    try {
      this.#worker = this.#startWorker();
    } catch (error) {
      this.#noteFallback(error);
    }
  }

  get execution() {
    return this.#worker ? 'worker' : 'main-thread';
  }

  /** The engine's metadata and what the page knows about where it runs. */
  metadata() {
    const metadata = { ...this.#snapshot.metadata, 'llamadart.webgpu.execution': this.execution };
    if (!this.#worker && this.#fallbackReason !== null) metadata[FALLBACK_REASON_KEY] = this.#fallbackReason;
    const notes = [...this.#notes, metadata[NOTES_KEY]].filter(Boolean);
    if (notes.length) metadata[NOTES_KEY] = notes.join(';');
    return metadata;
  }

  /**
   * @param {import('./operation_queue.js').Operation} operation
   * @param {Request} request
   */
  async run(operation, request) {
    const runtime = this.#worker ?? this.#openDirect();
    try {
      const value = await this.#attempt(runtime, operation, request);
      if (request.remember) this.#model = request.remember;
      return value;
    } catch (error) {
      if (METHOD_RULES[request.method].fallback === 'load') return this.#recoverLoad(runtime, error, operation, request);
      if (operation.cancelRequested || !runtime.isWorker || !needsFallback(request.method, error)) throw error;
      return this.#runOnMainThread(error, operation, request);
    }
  }

  /** Best effort, when no operation runs: nothing of the page's is told, the engine may have work of its own. */
  cancelIdle() {
    this.#worker?.cancel();
    this.#direct?.cancel();
  }

  /** What the page did to the model cache: part of the metadata where the engine is on the page's own thread. */
  publishCacheFacts({ source, state, name, notes }) {
    if (this.#worker) return;
    const facts = { model_source: source, model_cache_state: state, model_cache_name: name };
    for (const [key, value] of Object.entries(facts)) {
      if (value !== undefined) this.#snapshot.metadata = { ...this.#snapshot.metadata, [`llamadart.webgpu.${key}`]: value };
    }
    notes.forEach((note) => this.#addNote(note));
  }

  /** @param {number} level */
  setLogLevel(level) {
    this.#config = { ...this.#config, logLevel: level };
    (this.#worker ?? this.#direct)?.notify('setLogLevel', [level]);
  }

  async dispose() {
    if (this.#worker) this.#retire();
    await Promise.all(this.#retired);
    await this.#direct?.dispose();
    this.#direct = null;
    this.#model = null;
    this.#fallbackReason = null;
    this.#notes = [];
  }

  async #attempt(runtime, operation, request) {
    operation.enter(runtime);
    const { args, transfer } = request.message();
    const isCurrent = () => runtime === (this.#worker ?? this.#direct);
    const labels = { operationId: operation.id, workerGeneration: this.#workerGeneration };
    let usage = null;
    const onEvent = (event, payload) => {
      if (!isCurrent()) return;
      if (event === 'usage') usage = payload;
      else if (!operation.cancelRequested) request.onEvent?.(event, payload);
    };
    const isLoad = METHOD_RULES[request.method].fallback === 'load';
    let reply;
    try {
      const limits = this.#limits(runtime, request, args);
      reply = await runtime.call(request.method, args, { transfer, onEvent, labels, ...limits });
      if (isLoad) this.modelGeneration += 1;
    } catch (error) {
      if (isLoad && !holdsModel(error.state)) this.modelGeneration += 1;
      if (operation.cancelRequested) {
        this.#resyncAfterCancel(request.method, error.state);
        throw operation.abortError();
      }
      if (isCurrent()) this.#snapshot.apply(error.state);
      throw error;
    }
    if (usage && isCurrent()) request.onUsage?.(usage);
    const keepsPartial = METHOD_RULES[request.method].keepsPartial && !runtime.isWorker;
    if (operation.aborted && !keepsPartial) {
      this.#resyncAfterCancel(request.method, reply.state, true);
      throw operation.abortError();
    }
    if (isCurrent()) this.#snapshot.apply(reply.state);
    return reply.value;
  }

  #limits(runtime, { method }, args) {
    if (!runtime.isWorker) return {};
    return { budgetMs: requestBudgetMs(this.#config, method, args), stallMs: stallBudgetMs(this.#config, method) };
  }

  /** After a cancelled load the old model may be gone, or replaced: then it must not come back by itself later. */
  #resyncAfterCancel(method, state, hasLoaded = false) {
    if (METHOD_RULES[method].fallback !== 'load') return;
    if (hasLoaded || state?.metadata?.[MODEL_BYTES_KEY] === '0') this.#model = null;
  }

  /** A failed load leaves the model that the engine still reports, or none. */
  async #recoverLoad(runtime, error, operation, request) {
    if (operation.cancelRequested) throw error;
    if (!runtime.isWorker) return this.#forgetUnlessHeld(error);
    let failure = error;
    if (isRecoverableByRestart(error)) {
      this.#log.warn(`llamadart: restarting the bridge worker after a failed model load (${errorText(error)})`);
      await this.#restartWorker();
      operation.throwIfCancelled();
      if (!this.#worker) return this.#runOnMainThread(error, operation, request);
      try {
        const value = await this.#attempt(this.#worker, operation, request);
        this.#model = request.remember;
        return value;
      } catch (retryError) {
        if (operation.cancelRequested) throw retryError;
        failure = retryError;
      }
    }
    if (!mayRunOnMainThread(failure)) return this.#forgetUnlessHeld(failure);
    return this.#runOnMainThread(failure, operation, request);
  }

  #forgetUnlessHeld(error) {
    if (!holdsModel(error.state)) {
      this.#model = null;
      this.#snapshot.clear();
      this.#snapshot.apply(error.state);
    }
    throw error;
  }

  /** The worker is given up for good; the call is repeated here, with the model back in place where it needs one. */
  async #runOnMainThread(error, operation, request) {
    const rules = METHOD_RULES[request.method];
    const isLoad = rules.fallback === 'load';
    this.#noteFallback(error);
    await this.#retire();
    if (isLoad || !rules.reload) this.#model = null;
    this.#snapshot.clear({ direct: true });
    const direct = this.#openDirect();
    if (this.#model) await this.#reloadModel(direct, operation);
    try {
      const value = await this.#attempt(direct, operation, request);
      if (isLoad) this.#model = request.remember;
      return value;
    } catch (retryError) {
      if (isLoad && !operation.cancelRequested) this.#forgetUnlessHeld(retryError);
      throw retryError;
    }
  }

  async #reloadModel(direct, operation) {
    const { source, options } = this.#model;
    this.#addNote('worker_fallback_reload_model');
    const request = { method: 'loadModelFromUrl', message: () => ({ args: [source, options] }) };
    try {
      await this.#attempt(direct, operation, request);
    } catch (error) {
      this.#model = null;
      this.#direct = null;
      this.#snapshot.clear({ direct: true });
      await direct.dispose();
      throw error;
    }
  }

  async #restartWorker() {
    await this.#retire();
    this.#model = null;
    this.#snapshot.clear();
    try {
      this.#worker = this.#startWorker();
    } catch {
      this.#worker = null;
    }
  }

  /** Dispose the worker in its own time; `dispose` waits for all of them. */
  #retire() {
    this.modelGeneration += 1;
    const disposal = this.#worker?.dispose().catch(() => {});
    this.#worker = null;
    this.#retired.push(disposal);
    return disposal;
  }

  #startWorker() {
    const started = startWorker(this.#config.workerUrl, this.#bridgeUrl, pageUrl());
    const initMs = initBudgetMs(this.#config);
    this.#workerGeneration += 1;
    return new RuntimeProxy(started, { config: engineConfig(this.#config), initMs, isWorker: true });
  }

  #openDirect() {
    this.#direct ??= new RuntimeProxy(this.#openDirectPort(), { config: engineConfig(this.#config), isWorker: false });
    return this.#direct;
  }

  #noteFallback(error) {
    const reason = errorText(error);
    this.#fallbackReason = reason;
    globalThis.__llamadartBridgeWorkerFallbackReason = reason;
    this.#addNote(`worker_fallback:${reason.replaceAll(';', ',')}`);
    this.#log.warn(`llamadart: bridge worker unavailable, falling back to main thread (${reason})`);
  }

  #addNote(note) {
    if (!this.#notes.includes(note)) this.#notes.push(note);
  }
}

function needsFallback(method, error) {
  switch (METHOD_RULES[method].fallback) {
    case 'unusable':
      return isWorkerUnusable(error);
    case 'lost':
      return mayRunOnMainThread(error);
    case 'any':
      return !isAnswer(error);
    default:
      return false;
  }
}
