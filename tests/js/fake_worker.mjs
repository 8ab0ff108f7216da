// A Worker that records what the page posts and says what a test tells it to; and an engine for the page's own thread.

import { test } from 'node:test';

import { LlamaWebGpuBridge } from '../../web/llama_webgpu_bridge.js';

export const PAGE = 'https://e.test/app/index.html';
globalThis.location ??= { href: PAGE };

/** The suites run in Node, and in a page (e2e/test_protocol.py). */
export const isPage = typeof document !== 'undefined';

export class FakeWorker {
  static all = [];
  /** Set to make construction throw: (url) => Error | null. */
  static refuse = () => null;
  /** Answers every worker gives by itself: {method: (message, worker) => void}. */
  static answers = {};
  static readyAtOnce = true;

  static get last() {
    return FakeWorker.all.at(-1);
  }

  static reset() {
    FakeWorker.all = [];
    FakeWorker.refuse = () => null;
    FakeWorker.answers = { dispose: (message, worker) => worker.result(message.id) };
    FakeWorker.readyAtOnce = true;
  }

  constructor(url, options) {
    const error = FakeWorker.refuse(String(url));
    if (error) throw error;
    Object.assign(this, { url: String(url), options, messages: [], transfers: [], terminated: 0 });
    FakeWorker.all.push(this);
  }

  postMessage(message, transfer = []) {
    const copy = structuredClone(message, { transfer });
    this.messages.push(copy);
    this.transfers.push(transfer);
    if (copy.type === 'init' && FakeWorker.readyAtOnce) queueMicrotask(() => this.ready());
    if (copy.type === 'call') queueMicrotask(() => FakeWorker.answers[copy.method]?.(copy, this));
  }

  terminate() {
    this.terminated += 1;
  }

  emit(data) {
    this.onmessage?.({ data });
  }

  ready() {
    this.emit({ type: 'ready' });
  }

  result(id, value, state) {
    this.emit({ type: 'result', id, value, state });
  }

  error(id, message, state) {
    this.emit({ type: 'error', id, message, state });
  }

  event(id, event, payload) {
    this.emit({ type: 'event', id, event, payload });
  }

  crash(message) {
    this.onerror?.({ message });
  }

  calls(method) {
    return this.messages.filter(({ type, method: m }) => type === 'call' && (!method || m === method));
  }

  methods() {
    return this.calls().map(({ method }) => method);
  }
}

export const LOADED = {
  metadata: { 'llamadart.webgpu.model_bytes': '100' },
  contextSize: 512,
  gpuActive: true,
  backendName: 'WebGPU',
  supportsVision: false,
  supportsAudio: false,
};

export const EMPTY = {
  metadata: { 'llamadart.webgpu.model_bytes': '0' },
  contextSize: 0,
  gpuActive: false,
  backendName: 'WASM (Prototype bridge)',
  supportsVision: false,
  supportsAudio: false,
};

/** Replaces the globals that decide on worker mode; call it once per test file. */
export function installFakeWorker() {
  FakeWorker.reset();
  globalThis.Worker = FakeWorker;
  const { setTimeout } = globalThis;
  if (isPage) return;
  globalThis.setTimeout = (...timer) => setTimeout(...timer).unref(); // unanswered calls must not keep the tests alive
}

/** A bridge whose direct mode is a second fake, opened with the same recording. */
export function bridgeWithFakes(config = {}) {
  const direct = [];
  const openDirectPort = () => {
    const port = new FakeWorker('direct:', {});
    FakeWorker.all.pop();
    direct.push(port);
    return { port, release() {} };
  };
  return { bridge: new LlamaWebGpuBridge(config, { openDirectPort }), direct };
}

/** Let every promise that can settle settle. */
export function settled() {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}

/** Rejections that nobody handles, from now on. @returns {{reasons: unknown[], stop: () => void}} */
export function unhandledRejections() {
  const reasons = [];
  if (isPage) {
    const listen = (event) => reasons.push(event.reason);
    addEventListener('unhandledrejection', listen);
    return { reasons, stop: () => removeEventListener('unhandledrejection', listen) };
  }
  const listen = (reason) => reasons.push(reason);
  process.on('unhandledRejection', listen);
  return { reasons, stop: () => process.off('unhandledRejection', listen) };
}

export async function loadedBridge(config = {}) {
  const parts = bridgeWithFakes(config);
  const loading = parts.bridge.loadModelFromUrl('m.gguf', { nCtx: 512 });
  await settled();
  const worker = FakeWorker.last;
  worker.result(worker.calls('loadModelFromUrl')[0].id, 1, LOADED);
  await loading;
  return { ...parts, worker };
}

/**
 * A test for each mode. `run` gets {mode, open, loaded}: open(config) makes a bridge, loaded(config) one with a model, both
 * giving {bridge, port}, where port() is the fake that the bridge's engine is behind.
 *
 * @param {string} title @param {(parts: object, t: object) => Promise<void>} run
 */
export function testInBothModes(title, run) {
  for (const mode of ['worker', 'direct']) {
    const open = (config = {}) => {
      const { bridge, direct } = bridgeWithFakes({ ...config, disableWorker: mode === 'direct' });
      const worker = FakeWorker.last;
      return { bridge, direct, port: () => (mode === 'worker' ? worker : direct[0]) };
    };
    const loaded = async (config) => {
      const parts = open(config);
      const loading = parts.bridge.loadModelFromUrl('m.gguf', { nCtx: 512 });
      await settled();
      parts.port().result(parts.port().calls('loadModelFromUrl')[0].id, 1, LOADED);
      await loading;
      return parts;
    };
    test(`${title} [${mode}]`, (t) => run({ mode, open, loaded }, t));
  }
}

/** The outcome of a promise without throwing: [value] or [undefined, error]. */
export function outcome(promise) {
  return promise.then(
    (value) => [value],
    (error) => [undefined, error],
  );
}
