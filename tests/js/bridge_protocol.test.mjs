import assert from 'node:assert/strict';
import { beforeEach, mock, test } from 'node:test';

import { LlamaWebGpuBridge } from '../../web/llama_webgpu_bridge.js';
import {
  bridgeWithFakes,
  FakeWorker,
  installFakeWorker,
  isPage,
  LOADED,
  outcome,
  PAGE,
  settled,
  testInBothModes,
} from './fake_worker.mjs';

installFakeWorker();
console.warn = () => {};
beforeEach(() => FakeWorker.reset());

test('init is posted first and no call before ready', async () => {
  FakeWorker.readyAtOnce = false;
  const { bridge } = bridgeWithFakes();
  bridge.tokenize('x').catch(() => {});
  await settled();
  assert.deepEqual(FakeWorker.last.messages.map(({ type }) => type), ['init']);
  FakeWorker.last.ready();
  await settled();
  assert.deepEqual(FakeWorker.last.methods(), ['tokenize']);
});

test('the worker script is a module, and only a bridge module gets the mode parameter', () => {
  bridgeWithFakes({ workerUrl: 'w/x_worker.js' });
  assert.equal(FakeWorker.last.url, 'https://e.test/app/w/x_worker.js');
  assert.equal(FakeWorker.last.options.type, 'module');
  bridgeWithFakes({ workerUrl: ' /bridge.js ' });
  assert.equal(FakeWorker.last.url, 'https://e.test/bridge.js?__llamadartBridgeWorker=1');
  bridgeWithFakes();
  assert.match(FakeWorker.last.url, /\/worker\/llama_webgpu_bridge_worker\.js$/);
});

test('a worker that cannot start from a URL starts from a blob, which is revoked once', async () => {
  const revoked = mock.method(URL, 'revokeObjectURL');
  FakeWorker.refuse = (url) => (url.startsWith('blob:') ? null : new Error('cross-origin'));
  const { bridge } = bridgeWithFakes({ workerUrl: 'https://cdn.test/x_worker.js' });
  const { url } = FakeWorker.last;
  assert.match(url, /^blob:/);
  const source = await (await fetch(url)).text();
  assert.match(source, /from "https:\/\/cdn\.test\/x_worker\.js"/);
  assert.equal(revoked.mock.callCount(), 0);
  await bridge.dispose();
  assert.deepEqual(revoked.mock.calls.map(({ arguments: [first] }) => first), [url]);
  revoked.mock.restore();
});

test('a worker that never starts leaves a bridge on the main thread, with the reason', () => {
  FakeWorker.refuse = () => new Error('workers are blocked');
  const { bridge } = bridgeWithFakes();
  const metadata = bridge.getModelMetadata();
  assert.equal(metadata['llamadart.webgpu.execution'], 'main-thread');
  assert.equal(metadata['llamadart.webgpu.worker_fallback_reason'], 'workers are blocked');
  assert.equal(globalThis.__llamadartBridgeWorkerFallbackReason, 'workers are blocked');
  assert.equal(bridge.getContextSize(), 4096);
});

test('disableWorker and coreModuleFactory construct no worker', () => {
  bridgeWithFakes({ disableWorker: true });
  bridgeWithFakes({ coreModuleFactory: () => {} });
  assert.equal(FakeWorker.all.length, 0);
});

test('only whitelisted config crosses, with its defaults', () => {
  const numbers = { threads: '2', nBatch: -1, nGpuLayers: -1, coreInitTimeoutMs: 7 };
  bridgeWithFakes({ logger: { warn() {} }, unknownKey: 1, logLevel: 'debug', ...numbers });
  const { config } = FakeWorker.last.messages[0];
  assert.equal('logger' in config || 'unknownKey' in config, false);
  assert.equal(config.threads, 2);
  assert.equal(config.nBatch, undefined);
  assert.equal(config.nGpuLayers, -1);
  assert.equal(config.logLevel, 2);
  assert.equal(config.disableImageDownscale, false);
  assert.equal(config.coreInitTimeoutMs, 7);
});

test('ids start at 1 and count every call', async () => {
  FakeWorker.answers.tokenize = ({ id }, worker) => worker.result(id, [id]);
  const { bridge } = bridgeWithFakes();
  assert.deepEqual([await bridge.tokenize('a'), await bridge.tokenize('b')], [[1], [2]]);
});

test('a reply with an unknown id is ignored', async () => {
  const { bridge } = bridgeWithFakes();
  const call = bridge.tokenize('a');
  await settled();
  FakeWorker.last.result(99, [9]);
  FakeWorker.last.result(1, [1]);
  assert.deepEqual(await call, [1]);
});

test('callbacks and signals never cross, everything else does', async () => {
  const { bridge } = bridgeWithFakes();
  const signal = new AbortController().signal;
  outcome(bridge.loadModelFromUrl('m.gguf', { nCtx: 64, signal, progressCallback() {}, other: 1 }));
  await settled();
  assert.deepEqual(FakeWorker.last.calls()[0].args, ['https://e.test/app/m.gguf', { nCtx: 64, other: 1 }]);
  FakeWorker.last.result(1, 1, LOADED);
  outcome(bridge.createCompletion('hi', { nPredict: 3, onToken() {}, onUsage() {}, signal }));
  await settled();
  assert.deepEqual(FakeWorker.last.calls()[1].args, ['hi', { nPredict: 3 }]);
});

test('a leftover function in the options rejects and does not wedge the queue', async () => {
  FakeWorker.answers.tokenize = ({ id }, worker) => worker.result(id, []);
  const { bridge } = bridgeWithFakes();
  const [, error] = await outcome(bridge.createCompletion('hi', { filter() {} }));
  assert.equal(error.name, 'DataCloneError');
  assert.deepEqual(await bridge.tokenize('x'), []);
});

test('model lists are trimmed, made absolute and kept in order', async () => {
  const { bridge } = bridgeWithFakes();
  outcome(bridge.loadModelFromUrl([' a.gguf ', '', '/b.gguf']));
  await settled();
  assert.deepEqual(FakeWorker.last.calls()[0].args[0], ['https://e.test/app/a.gguf', 'https://e.test/b.gguf']);
  assert.equal(PAGE, 'https://e.test/app/index.html');
});

test('an empty model URL stays empty instead of naming the page', async () => {
  const { bridge } = bridgeWithFakes();
  outcome(bridge.loadModelFromUrl('  '));
  await settled();
  assert.equal(FakeWorker.last.calls()[0].args[0], '');
});

test('state bytes, adapters and heads travel as private copies', async () => {
  const { bridge } = bridgeWithFakes();
  const bytes = new Uint8Array([1, 2, 3]);
  outcome(bridge.stateLoadBytes(bytes, 7));
  await settled();
  assert.notEqual(FakeWorker.last.transfers[1][0], bytes.buffer);
  assert.equal(bytes.length, 3);
  assert.deepEqual(FakeWorker.last.calls()[0].args, [new Uint8Array([1, 2, 3]), 7]);
  FakeWorker.last.error(1, 'no');
  outcome(bridge.loadLoraAdapter(bytes));
  await settled();
  assert.notEqual(FakeWorker.last.transfers[2][0], bytes.buffer);
  FakeWorker.last.error(2, 'no');
  outcome(bridge.loadDecisionHead('heads/h.safetensors'));
  await settled();
  assert.deepEqual(FakeWorker.last.calls()[2].args, ['https://e.test/app/heads/h.safetensors', { configJson: null }]);
  FakeWorker.last.error(3, 'no');
  outcome(bridge.loadLoraAdapter('adapters/a.gguf', { useCache: false, signal: new AbortController().signal }));
  await settled();
  assert.deepEqual(FakeWorker.last.calls()[3].args, ['https://e.test/app/adapters/a.gguf', { useCache: false }]);
});

testInBothModes('case 56: state capacities: coerced once, at most the context of the moment', async ({ loaded }) => {
  const { bridge, port } = await loaded();
  let coerced = 0;
  const oddly = { valueOf: () => (coerced += 1) && 9.75 };
  const throwing = { valueOf() { throw new Error('no'); } };
  const capacities = [undefined, 0, -1, NaN, Symbol('x'), throwing, Infinity, oddly];
  for (const [method, first] of [['stateLoadFile', 's'], ['stateLoadBytes', Uint8Array.of(1)]]) {
    coerced = 0;
    FakeWorker.answers[method] = ({ id }, engine) => engine.result(id, { tokens: [] });
    for (const capacity of capacities) await bridge[method](first, capacity);
    const sent = port().calls(method).map(({ args }) => args[1]);
    assert.deepEqual(sent, [512, 512, 512, 512, 512, 512, Infinity, 9]);
    assert.equal(coerced, 1);
  }
});

testInBothModes('token ids cross as a list of numbers, whatever list they come in', async ({ open }) => {
  for (const [given, sent] of [[Int32Array.of(1, 2), [1, 2]], [BigInt64Array.of(3n), [3]], [new Set(['4']), [4]], [{ length: 1, 0: 5 }, [5]]]) {
    const { bridge, port } = open();
    outcome(bridge.detokenize(given));
    outcome(bridge.stateSaveBytes(given));
    await settled();
    port().result(1, 'x');
    await settled();
    assert.deepEqual(port().calls().map(({ args }) => args[0]), [sent, sent]);
  }
});

test('worker errors carry their text, and a typed embedding error its class and code', async () => {
  const { bridge } = bridgeWithFakes();
  const first = outcome(bridge.tokenize('x'));
  await settled();
  FakeWorker.last.error(1, 'Tokenization failed');
  assert.equal((await first)[1].message, 'Tokenization failed');
  const second = outcome(bridge.embed([]));
  await settled();
  const typed = { name: 'EmbeddingError', code: 'INVALID_EMBEDDING_INPUT' };
  FakeWorker.last.emit({ type: 'error', id: 2, message: 'no parts', ...typed });
  const [, error] = await second;
  assert.equal(error.name, 'EmbeddingError');
  assert.equal(error.code, 'INVALID_EMBEDDING_INPUT');
});

test('statics', () => {
  assert.equal(LlamaWebGpuBridge.supportsSafariAdaptiveGpu, true);
  assert.equal(LlamaWebGpuBridge.supportsCompletionUsage, true);
});

test('a page gets the class as a global', { skip: !isPage }, () => {
  assert.equal(window.LlamaWebGpuBridge, LlamaWebGpuBridge);
});

test('the global of a page stays where there is one', { skip: isPage }, async () => {
  globalThis.window = {};
  const { LlamaWebGpuBridge: again } = await import('../../web/llama_webgpu_bridge.js?again');
  assert.equal(globalThis.window.LlamaWebGpuBridge, again);
  const own = {};
  globalThis.window = { LlamaWebGpuBridge: own };
  await import('../../web/llama_webgpu_bridge.js?oncemore');
  assert.equal(globalThis.window.LlamaWebGpuBridge, own);
  delete globalThis.window;
});

test('completion capabilities count only exact trues', async () => {
  FakeWorker.answers.getCompletionCapabilities = ({ id }, worker) =>
    worker.result(id, { minP: true, presencePenalty: 1, speculativeDecoding: { 'ngram-mod': true } });
  const { bridge } = bridgeWithFakes();
  const flags = await bridge.getCompletionCapabilities();
  assert.deepEqual([flags.minP, flags.presencePenalty, flags.thinkingBudget], [true, false, false]);
  assert.equal(flags.speculativeDecoding['ngram-mod'], true);
  assert.equal(Object.keys(flags.speculativeDecoding).length, 10);
});
