/**
 * The page's side of the engine: the public class, its call-time checks and its queue.
 *
 * Everything a call means is decided by the Python engine behind it; this module only brings calls there, in order,
 * and answers back. `<script type="module">` is enough: it sets `window.LlamaWebGpuBridge`.
 */

import { checkHandle, copiedBytes, requestedCapacity, sourceMessage } from './bridge/arguments.js';
import { completionRequestOptions } from './bridge/completion_options.js';
import { decisionSequences } from './bridge/decision_input.js';
import { describe } from './bridge/describe.js';
import { openDirectPort } from './bridge/direct_port.js';
import { embeddingInput } from './bridge/embedding_input.js';
import { EmbeddingError } from './bridge/failures.js';
import { Handles } from './bridge/handles.js';
import { Log } from './bridge/log.js';
import { Operation, OperationQueue } from './bridge/operation_queue.js';
import { METHOD_RULES } from './bridge/operations.js';
import { PageCache } from './bridge/page_cache.js';
import { absoluteUrl, modelSource } from './bridge/page_urls.js';
import { Runtimes } from './bridge/runtimes.js';
import { scoreRequestOptions, scoresFromAnswer, tokenDetails } from './bridge/scoring.js';
import { Snapshot } from './bridge/snapshot.js';
import { STRATEGIES } from './bridge/speculative_options.js';
import { enableBridgeWorkerHost } from './bridge/worker_host.js';
import { WORKER_MODE_PARAMETER } from './bridge/worker_port.js';

export { enableBridgeWorkerHost, EmbeddingError };

const disposedError = () => new Error('Bridge has been disposed.');

/** @typedef {{args: unknown[], transfer?: Transferable[]}} Message */

export class LlamaWebGpuBridge {
  static supportsSafariAdaptiveGpu = true;
  static supportsCompletionUsage = true;

  #queue = new OperationQueue();
  #log;
  #snapshot;
  #runtimes;
  #cache;
  #decisionHeads = new Handles('Decision head');
  #adapters = new Handles('LoRA adapter');
  #disposal = null;

  /**
   * @param {Record<string, any>} [config]
   * @param {{openDirectPort?: Function}} [parts]  another engine for the page's own thread (tests)
   */
  constructor(config = {}, parts = {}) {
    const settings = { ...config };
    this.#log = new Log(settings);
    this.#snapshot = new Snapshot();
    this.#runtimes = new Runtimes({
      config: settings,
      bridgeUrl: import.meta.url,
      openDirectPort: parts.openDirectPort ?? openDirectPort,
      log: this.#log,
      snapshot: this.#snapshot,
    });
    this.#cache = new PageCache(settings, (facts) => {
      if (!this.#disposal) this.#runtimes.publishCacheFacts(facts);
    });
    this.#snapshot.clear({ direct: this.#runtimes.execution !== 'worker' });
  }

  // Models

  async loadModelFromUrl(url, options = {}) {
    const { progressCallback, signal, ...sent } = options ?? {};
    const source = modelSource(url);
    return this.#enqueue('loadModelFromUrl', [source, sent], {
      signal,
      onEvent: this.#progressTo(progressCallback, 'progressCallback'),
      remember: { source, options: sent },
    });
  }

  /** Beyond the documented API: what loading this model with these options would take, from its header alone. */
  async estimateMemory(url, options = {}) {
    const { progressCallback, signal, ...sent } = options ?? {};
    return this.#enqueue('estimateMemory', [modelSource(url), sent], { signal });
  }

  async prefetchModelToCache(url, options = {}) {
    this.#refuseWhenDisposed();
    const { progressCallback } = options ?? {};
    return this.#cache.prefetch(modelSource(url), options ?? {}, (progress) => {
      if (progressCallback) this.#callBack('progressCallback', () => progressCallback(progress));
    });
  }

  async evictModelFromCache(url, options = {}) {
    this.#refuseWhenDisposed();
    return this.#cache.evict(modelSource(url), options ?? {});
  }

  /** Beyond the documented API: the entries of the model cache. */
  async listCache(options = {}) {
    this.#refuseWhenDisposed();
    return this.#cache.list(options ?? {});
  }

  async loadMultimodalProjector(url) {
    return this.#enqueue('loadMultimodalProjector', [typeof url === 'string' ? modelSource(url) : url]);
  }

  async unloadMultimodalProjector() {
    return this.#enqueue('unloadMultimodalProjector', []);
  }

  async loadDraftModel(url, options = {}) {
    const { progressCallback, signal, ...sent } = options ?? {};
    return this.#enqueue('loadDraftModel', [modelSource(url), sent], {
      signal,
      onEvent: this.#progressTo(progressCallback, 'progressCallback'),
    });
  }

  async unloadDraftModel() {
    return this.#enqueue('unloadDraftModel', []);
  }

  // Text

  async createCompletion(prompt, options = {}) {
    const given = options ?? {};
    const sent = completionRequestOptions(given, absoluteUrl);
    const onToken = ({ pieceText, piece, currentText = '', details }) => {
      const more = details ? [tokenDetails(details)] : [];
      given.onToken(typeof pieceText === 'string' ? pieceText : Uint8Array.from(piece ?? []), currentText, ...more);
    };
    return this.#enqueue('createCompletion', [String(prompt), sent], {
      signal: given.signal,
      onEvent: (event, payload) => {
        if (event === 'token' && given.onToken) this.#callBack('onToken', () => onToken(payload));
      },
      onUsage: (usage) => given.onUsage && this.#callBack('onUsage', () => given.onUsage(usage)),
    });
  }

  async getCompletionCapabilities() {
    const answer = await this.#enqueue('getCompletionCapabilities', []);
    const flags = (source, names) => Object.fromEntries(names.map((name) => [name, source?.[name] === true]));
    return {
      ...flags(answer, ['presencePenalty', 'minP', 'thinkingBudget']),
      speculativeDecoding: flags(answer?.speculativeDecoding, STRATEGIES),
    };
  }

  async tokenize(text, addSpecial = true) {
    return this.#enqueue('tokenize', [String(text), Boolean(addSpecial)]);
  }

  async detokenize(tokens, special = false) {
    return this.#enqueue('detokenize', [Array.from(tokens, Number), Boolean(special)]);
  }

  async applyChatTemplate(messages, addAssistant = true, customTemplate = null) {
    return this.#enqueue('applyChatTemplate', [messages, addAssistant, customTemplate]);
  }

  /** Beyond the documented API: the loaded model's own Jinja template (or `template`), with any further variables. */
  async renderChatTemplate(messages, options = {}) {
    return this.#enqueue('renderChatTemplate', [messages, { ...options }]);
  }

  // State

  async stateSaveFile(path, tokens = []) {
    return this.#enqueue('stateSaveFile', [path, Array.from(tokens, Number)]);
  }

  async stateLoadFile(path, tokenCapacity) {
    const capacity = requestedCapacity(tokenCapacity);
    return this.#enqueue('stateLoadFile', () => ({ args: [path, capacity ?? this.getContextSize()] }));
  }

  async stateSaveBytes(tokens = []) {
    return this.#enqueue('stateSaveBytes', [Array.from(tokens, Number)]);
  }

  async stateLoadBytes(bytes, tokenCapacity) {
    const capacity = requestedCapacity(tokenCapacity);
    return this.#enqueue('stateLoadBytes', () => {
      const copy = copiedBytes(bytes);
      if (!copy.length) throw new Error('State bytes are empty.');
      return { args: [copy, capacity ?? this.getContextSize()], transfer: [copy.buffer] };
    });
  }

  // Embeddings and scores

  async getEmbeddingCapabilities() {
    const answer = await this.#enqueue('getEmbeddingCapabilities', []);
    if (answer?.apiVersion !== 1) {
      const text = 'The engine does not answer the embedding capability probe of API version 1.';
      throw new EmbeddingError(text, 'EMBEDDING_CAPABILITY_UNAVAILABLE');
    }
    const { text, image, audio } = answer;
    return { apiVersion: 1, text: text === true, image: image === true, audio: audio === true };
  }

  async embed(input, options = {}) {
    return this.#enqueue('embed', [embeddingInput(input), { ...options }]);
  }

  async embedBatch(inputs, options = {}) {
    this.#refuseWhenDisposed();
    const sent = Array.from(inputs, embeddingInput);
    return sent.length ? this.#enqueue('embedBatch', [sent, { ...options }]) : [];
  }

  /** Beyond the documented API: how well each document answers the query, by a reranking model. */
  async rank(query, documents) {
    if (typeof query !== 'string') throw new TypeError(`query must be a string, got ${describe(query)}`);
    if (typeof documents === 'string') throw new TypeError('documents must be a list of strings, got a string');
    const list = Array.from(documents);
    const wrong = list.findIndex((document) => typeof document !== 'string');
    if (wrong >= 0) throw new TypeError(`documents[${wrong}] must be a string, got ${describe(list[wrong])}`);
    return this.#enqueue('rank', [query, list]);
  }

  async scoreNextToken(prompt, options = {}) {
    const sent = scoreRequestOptions(prompt, options ?? {});
    return scoresFromAnswer(await this.#enqueue('scoreNextToken', [prompt, sent]));
  }

  // Speech

  async getTextToSpeechCapabilities() {
    return this.#enqueue('getTextToSpeechCapabilities', []);
  }

  async synthesizeSpeech(options = {}) {
    const { onProgress, signal, speakerAudio, ...sent } = options ?? {};
    const message = () => {
      if (speakerAudio == null) return { args: [sent] };
      const copy = copiedBytes(speakerAudio);
      return { args: [{ ...sent, speakerAudio: copy }], transfer: copy.length ? [copy.buffer] : [] };
    };
    return this.#enqueue('synthesizeSpeech', message, { signal, onEvent: this.#progressTo(onProgress, 'onProgress') });
  }

  // Decision heads

  async getDecisionCapabilities() {
    return this.#enqueue('getDecisionCapabilities', []);
  }

  async loadDecisionHead(source, options = {}) {
    const { configJson = null, onProgress } = options ?? {};
    if (configJson !== null && typeof configJson !== 'string') {
      throw new TypeError(`configJson must be a string; got ${describe(configJson)}`);
    }
    const info = await this.#enqueue('loadDecisionHead', sourceMessage('Decision head', source, { configJson }), {
      onEvent: this.#progressTo(onProgress, 'onProgress'),
    });
    return { ...info, handle: this.#decisionHeads.add(info?.handle, this.#runtimes.modelGeneration) };
  }

  async runDecision(handle, sequences) {
    checkHandle(handle);
    this.#refuseWhenDisposed();
    this.#decisionHeads.engineHandle(handle, this.#runtimes.modelGeneration);
    const sent = decisionSequences(sequences);
    return this.#enqueue('runDecision', this.#onHandle(this.#decisionHeads, handle, sent));
  }

  async freeDecisionHead(handle) {
    checkHandle(handle);
    this.#refuseWhenDisposed();
    if (!this.#decisionHeads.has(handle, this.#runtimes.modelGeneration)) return;
    await this.#enqueue('freeDecisionHead', this.#onHandle(this.#decisionHeads, handle));
    this.#decisionHeads.remove(handle);
  }

  // LoRA adapters

  async getLoraAdapterCapabilities() {
    return this.#enqueue('getLoraAdapterCapabilities', []);
  }

  async loadLoraAdapter(source, options = {}) {
    const { progressCallback, signal, useCache, cacheName } = options ?? {};
    const sent = {};
    if (useCache !== undefined) sent.useCache = useCache;
    if (cacheName !== undefined) sent.cacheName = cacheName;
    const info = await this.#enqueue('loadLoraAdapter', sourceMessage('LoRA adapter', source, sent), {
      signal,
      onEvent: this.#progressTo(progressCallback, 'progressCallback'),
    });
    return { ...info, handle: this.#adapters.add(info?.handle, this.#runtimes.modelGeneration) };
  }

  async setLoraAdapter(handle, scale = 1) {
    checkHandle(handle);
    if (typeof scale !== 'number' || !Number.isFinite(scale)) {
      throw new TypeError(`scale must be a finite number, got ${describe(scale)}`);
    }
    if (!Number.isFinite(Math.fround(scale))) throw new RangeError(`scale ${scale} is outside the 32-bit float range`);
    return this.#enqueue('setLoraAdapter', this.#onHandle(this.#adapters, handle, scale));
  }

  async removeLoraAdapter(handle) {
    checkHandle(handle);
    return this.#enqueue('removeLoraAdapter', this.#onHandle(this.#adapters, handle));
  }

  async clearLoraAdapters() {
    return this.#enqueue('clearLoraAdapters', []);
  }

  // What is known without asking

  getModelMetadata() {
    return this.#runtimes.metadata();
  }

  getContextSize() {
    return this.#snapshot.contextSize;
  }

  isGpuActive() {
    return this.#snapshot.gpuActive;
  }

  getBackendName() {
    return this.#snapshot.backendName;
  }

  supportsVision() {
    return this.#snapshot.supportsVision;
  }

  supportsAudio() {
    return this.#snapshot.supportsAudio;
  }

  /** Beyond the documented API: live and total objects of the engine, to show that nothing leaks. */
  async debugCounters() {
    return this.#enqueue('debugCounters', []);
  }

  // Control

  setLogLevel(level) {
    this.#refuseWhenDisposed();
    this.#log.setLevel(level);
    this.#runtimes.setLogLevel(this.#log.level);
  }

  cancel() {
    if (this.#disposal) return;
    if (this.#queue.active) this.#queue.active.cancel();
    else {
      this.#cache.cancel();
      this.#runtimes.cancelIdle();
    }
  }

  dispose() {
    if (this.#disposal) return this.#disposal;
    let settle;
    this.#disposal = new Promise((resolve) => {
      settle = resolve;
    });
    this.#cache.cancel();
    settle(this.#tearDown(this.#queue.close(disposedError)));
    return this.#disposal;
  }

  async #tearDown(idle) {
    await idle;
    await this.#runtimes.dispose();
    this.#snapshot.clear();
  }

  #refuseWhenDisposed() {
    if (this.#disposal) throw disposedError();
  }

  /**
   * @param {string} method
   * @param {unknown[] | (() => Message)} message  arguments, or what makes them when the call's turn comes
   * @param {{signal?: AbortSignal, onEvent?: Function, onUsage?: Function, remember?: object}} [options]
   */
  #enqueue(method, message, { signal, ...handlers } = {}) {
    const operation = new Operation({ cancelledText: METHOD_RULES[method].cancelledText, signal });
    const request = { method, message: Array.isArray(message) ? () => ({ args: message }) : message, ...handlers };
    return this.#queue.enqueue(operation, () => this.#runtimes.run(operation, request));
  }

  /** Arguments of a call on something loaded, which may be gone when its turn comes. */
  #onHandle(handles, handle, ...more) {
    return () => ({ args: [handles.engineHandle(handle, this.#runtimes.modelGeneration), ...more] });
  }

  #progressTo(callback, name) {
    return (event, payload) => {
      if (event === 'progress' && callback) this.#callBack(name, () => callback(payload));
    };
  }

  /** A callback's own failure is the page's: it is shown, and the call goes on. */
  #callBack(name, call) {
    try {
      call();
    } catch (error) {
      this.#log.error(`llamadart: ${name} threw`, error);
    }
  }
}

if (typeof window !== 'undefined' && !window.LlamaWebGpuBridge) window.LlamaWebGpuBridge = LlamaWebGpuBridge;

const isWorkerScope = typeof WorkerGlobalScope !== 'undefined' && globalThis.self instanceof WorkerGlobalScope;
if (isWorkerScope && new URL(self.location.href).searchParams.get(WORKER_MODE_PARAMETER) === '1') {
  enableBridgeWorkerHost();
}
