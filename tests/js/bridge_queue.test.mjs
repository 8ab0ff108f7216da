import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

import {
  bridgeWithFakes,
  EMPTY,
  FakeWorker,
  installFakeWorker,
  LOADED,
  loadedBridge,
  outcome,
  settled,
} from './fake_worker.mjs';

installFakeWorker();
console.warn = () => {};
beforeEach(() => FakeWorker.reset());

test('calls run one after another in call order', async () => {
  const { bridge } = bridgeWithFakes();
  const calls = [
    bridge.createCompletion('p'),
    bridge.tokenize('t'),
    bridge.embed('e'),
    bridge.detokenize([1]),
    bridge.stateSaveBytes(),
    bridge.scoreNextToken('s', { topK: 1 }),
  ];
  const methods = ['createCompletion', 'tokenize', 'embed', 'detokenize', 'stateSaveBytes', 'scoreNextToken'];
  for (const [i, call] of calls.entries()) {
    await settled();
    assert.deepEqual(FakeWorker.last.methods(), methods.slice(0, i + 1));
    FakeWorker.last.result(i + 1, i);
    assert.equal(await call, i);
  }
});

test('a failing call releases the queue', async () => {
  const { bridge } = bridgeWithFakes();
  const failing = outcome(bridge.tokenize('x'));
  const next = bridge.createCompletion('y');
  await settled();
  FakeWorker.last.error(1, 'Tokenization failed');
  await settled();
  FakeWorker.last.result(2, 'text');
  assert.equal((await failing)[1].message, 'Tokenization failed');
  assert.equal(await next, 'text');
});

test('a callback that throws neither fails its call nor wedges the queue', async () => {
  const shown = [];
  const { bridge } = bridgeWithFakes({ logger: { warn() {}, error: (text) => shown.push(text) } });
  const call = bridge.createCompletion('x', { onToken() { throw new Error('mine'); } });
  await settled();
  FakeWorker.last.event(1, 'token', { pieceText: 'a', currentText: '' });
  FakeWorker.last.result(1, 'a');
  assert.equal(await call, 'a');
  assert.deepEqual(shown, ['llamadart: onToken threw']);
});

test('bridges do not wait for each other', async () => {
  const first = bridgeWithFakes().bridge;
  outcome(first.tokenize('x'));
  const { bridge } = bridgeWithFakes();
  const call = bridge.tokenize('y');
  await settled();
  FakeWorker.last.result(1, [2]);
  assert.deepEqual(await call, [2]);
});

test('getters answer from the snapshot while an operation runs', async () => {
  const { bridge, worker } = await loadedBridge();
  outcome(bridge.createCompletion('x'));
  await settled();
  const before = worker.messages.length;
  assert.equal(bridge.getContextSize(), 512);
  assert.equal(bridge.isGpuActive(), true);
  assert.equal(bridge.getBackendName(), 'WebGPU');
  assert.equal(bridge.getModelMetadata()['llamadart.webgpu.execution'], 'worker');
  assert.equal(worker.messages.length, before);
});

test('an already aborted call posts nothing and the next one works', async () => {
  FakeWorker.answers.createCompletion = ({ id }, worker) => worker.result(id, 'ok');
  const { bridge } = bridgeWithFakes();
  const [, error] = await outcome(bridge.createCompletion('x', { signal: AbortSignal.abort() }));
  assert.equal(error.name, 'AbortError');
  assert.equal(error.message, 'Generation was cancelled.');
  assert.equal(await bridge.createCompletion('y'), 'ok');
  assert.equal(FakeWorker.last.calls().length, 1);
});

test('an abort while queued rejects at once, posts nothing and leaves the running call alone', async () => {
  const { bridge } = bridgeWithFakes();
  const running = bridge.createCompletion('a');
  const controller = new AbortController();
  const queued = [
    outcome(bridge.createCompletion('b', { signal: controller.signal })),
    outcome(bridge.synthesizeSpeech({ text: 'b', signal: controller.signal })),
    outcome(bridge.loadModelFromUrl('b', { signal: controller.signal })),
  ];
  await settled();
  controller.abort();
  const texts = (await Promise.all(queued)).map(([, error]) => `${error.name}: ${error.message}`);
  assert.deepEqual(texts, [
    'AbortError: Generation was cancelled.',
    'AbortError: Text-to-speech synthesis was cancelled.',
    'AbortError: Model load was cancelled.',
  ]);
  FakeWorker.last.result(1, 'full');
  assert.equal(await running, 'full');
  assert.deepEqual(FakeWorker.last.methods(), ['createCompletion']);
});

test('cancel reaches the running call at once, only once, and the queued one runs afterwards', async () => {
  const { bridge } = bridgeWithFakes();
  const running = bridge.createCompletion('a');
  const next = bridge.tokenize('b');
  await settled();
  bridge.cancel();
  assert.deepEqual(FakeWorker.last.methods(), ['createCompletion', 'cancel']);
  bridge.cancel();
  FakeWorker.last.result(1, 'part');
  assert.equal(await running, 'part');
  await settled();
  assert.deepEqual(FakeWorker.last.methods(), ['createCompletion', 'cancel', 'tokenize']);
  FakeWorker.last.result(3, [1]);
  assert.deepEqual(await next, [1]);
});

test('cancel without a running call is posted and harms nothing later', async () => {
  FakeWorker.answers.tokenize = ({ id }, worker) => worker.result(id, [7]);
  const { bridge } = bridgeWithFakes();
  await settled();
  bridge.cancel();
  assert.deepEqual(FakeWorker.last.methods(), ['cancel']);
  assert.deepEqual(await bridge.tokenize('x'), [7]);
});

test('an aborted completion rejects even when the worker then succeeds, and its state is dropped', async () => {
  const { bridge, worker } = await loadedBridge();
  const controller = new AbortController();
  const pieces = [];
  const call = outcome(bridge.createCompletion('x', { signal: controller.signal, onToken: (piece) => pieces.push(piece) }));
  await settled();
  worker.event(2, 'token', { pieceText: 'a', currentText: '' });
  controller.abort();
  assert.deepEqual(worker.methods().slice(1), ['createCompletion', 'cancel']);
  worker.event(2, 'token', { pieceText: 'b', currentText: '' });
  worker.result(2, 'ab', { ...LOADED, contextSize: 9 });
  assert.equal((await call)[1].name, 'AbortError');
  assert.deepEqual(pieces, ['a']);
  assert.equal(bridge.getContextSize(), 512);
});

test('a load aborted too late leaves the page without a remembered model', async () => {
  const { bridge, worker, direct } = await loadedBridge();
  const controller = new AbortController();
  const load = outcome(bridge.loadModelFromUrl('other.gguf', { signal: controller.signal }));
  await settled();
  controller.abort();
  worker.result(2, 1, { ...LOADED, contextSize: 2048 });
  assert.equal((await load)[1].message, 'Model load was cancelled.');
  assert.equal(bridge.getContextSize(), 512);
  const call = outcome(bridge.tokenize('x'));
  await settled();
  worker.crash('gone');
  await settled();
  direct[0].error(direct[0].calls('tokenize')[0].id, 'No model loaded. Call loadModelFromUrl first.');
  assert.match((await call)[1].message, /No model loaded/);
  assert.deepEqual(direct[0].methods(), ['tokenize']); // and no reload of the old model
});

test('a cancelled call that the worker answers with an error is an abort and never a fallback', async () => {
  const { bridge, direct } = bridgeWithFakes();
  const call = outcome(bridge.createCompletion('x'));
  await settled();
  bridge.cancel();
  FakeWorker.last.error(1, 'worker request cancelled, bridge worker timed out');
  assert.equal((await call)[1].name, 'AbortError');
  assert.equal(direct.length, 0);
});

test('usage: held until the call ends, delivered before it settles, also after an abort', async () => {
  const { bridge } = bridgeWithFakes();
  const order = [];
  const controller = new AbortController();
  const call = outcome(
    bridge.createCompletion('x', {
      signal: controller.signal,
      onToken: () => order.push('token'),
      onUsage: ({ finishReason }) => order.push(finishReason),
    }),
  ).then(([, error]) => order.push(error.name));
  await settled();
  FakeWorker.last.event(1, 'token', { pieceText: 'a', currentText: '' });
  controller.abort();
  FakeWorker.last.event(1, 'usage', { finishReason: 'cancelled' });
  assert.deepEqual(order, ['token']);
  FakeWorker.last.result(1, 'a');
  await call;
  assert.deepEqual(order, ['token', 'cancelled', 'AbortError']);
});

test('no usage for a call that failed', async () => {
  const { bridge } = bridgeWithFakes();
  const call = outcome(bridge.createCompletion('x', { onUsage: () => assert.fail('usage of a failed call') }));
  await settled();
  FakeWorker.last.event(1, 'usage', { finishReason: 'stop' });
  FakeWorker.last.error(1, 'Generation step failed: x');
  assert.match((await call)[1].message, /step failed/);
});

test('token pieces: bytes or text, and a current text that is always a string from a worker', async () => {
  const { bridge } = bridgeWithFakes();
  const seen = [];
  const call = bridge.createCompletion('x', { onToken: (...token) => seen.push(token) });
  await settled();
  FakeWorker.last.event(1, 'token', { piece: [195, 169] });
  FakeWorker.last.event(1, 'token', { pieceText: 'é', currentText: 'éé' });
  FakeWorker.last.event(1, 'unknown', { piece: [1] });
  FakeWorker.last.result(1, 'éé');
  await call;
  assert.deepEqual(seen, [[new Uint8Array([195, 169]), ''], ['é', 'éé']]);
});

test('on the page’s thread the current text is null when it is switched off', async () => {
  const { bridge, direct } = bridgeWithFakes({ disableWorker: true });
  const seen = [];
  const call = bridge.createCompletion('x', { emitCurrentTextOnToken: false, onToken: (...token) => seen.push(token) });
  await settled();
  direct[0].event(1, 'token', { pieceText: 'a', currentText: null });
  direct[0].result(1, 'a');
  await call;
  assert.deepEqual(seen, [['a', null]]);
});

test('details of tokens reach onToken as the page reads scores', async () => {
  const { bridge } = bridgeWithFakes();
  const seen = [];
  const call = bridge.createCompletion('x', { nProbs: 1, onToken: (...token) => seen.push(token[2]) });
  await settled();
  const score = { token: 5, bytes: [97], logprob: null };
  FakeWorker.last.event(1, 'token', { pieceText: 'a', details: [{ ...score, top: [{ ...score, logprob: -1 }] }] });
  FakeWorker.last.result(1, 'a');
  await call;
  const bytes = Uint8Array.of(97);
  assert.deepEqual(seen, [[{ token: 5, bytes, logprob: -Infinity, top: [{ token: 5, bytes, logprob: -1 }] }]]);
});

test('load progress reaches its callback', async () => {
  const { bridge } = bridgeWithFakes();
  const seen = [];
  const call = bridge.loadModelFromUrl('m', { progressCallback: (progress) => seen.push(progress) });
  await settled();
  FakeWorker.last.event(1, 'progress', { loaded: 1, total: 2 });
  FakeWorker.last.result(1, 1, LOADED);
  assert.equal(await call, 1);
  assert.deepEqual(seen, [{ loaded: 1, total: 2 }]);
});

test('a state load queued behind a model load sees the new context size', async () => {
  const { bridge } = bridgeWithFakes();
  outcome(bridge.loadModelFromUrl('m'));
  outcome(bridge.stateLoadFile('s'));
  await settled();
  FakeWorker.last.result(1, 1, LOADED);
  await settled();
  assert.deepEqual(FakeWorker.last.calls('stateLoadFile')[0].args, ['s', 512]);
});

test('a refused log level harms nothing', async () => {
  FakeWorker.answers.setLogLevel = ({ id }, worker) => worker.error(id, 'bridge worker timed out');
  const { bridge } = bridgeWithFakes();
  await settled();
  bridge.setLogLevel(99);
  await settled();
  assert.deepEqual(FakeWorker.last.calls('setLogLevel')[0].args, [4]);
  assert.equal(bridge.getModelMetadata()['llamadart.webgpu.worker_fallback_reason'], undefined);
});

test('dispose: queued calls reject at once, the running one finishes, then the worker goes, once', async () => {
  const { bridge } = bridgeWithFakes();
  const running = bridge.createCompletion('a');
  const queued = outcome(bridge.tokenize('b'));
  await settled();
  const disposal = bridge.dispose();
  assert.equal((await queued)[1].message, 'Bridge has been disposed.');
  assert.deepEqual(FakeWorker.last.methods(), ['createCompletion']);
  FakeWorker.last.result(1, 'all of it');
  assert.equal(await running, 'all of it');
  await disposal;
  assert.deepEqual(FakeWorker.last.methods(), ['createCompletion', 'dispose']);
  assert.equal(FakeWorker.last.terminated, 1);
  assert.equal(bridge.dispose(), disposal);
});

test('after dispose: empty state, refused calls, silent cancel', async () => {
  const { bridge, worker } = await loadedBridge();
  await bridge.dispose();
  assert.deepEqual(bridge.getModelMetadata(), { 'llamadart.webgpu.execution': 'main-thread' });
  assert.equal(bridge.getContextSize(), EMPTY.contextSize);
  assert.equal(bridge.getBackendName(), 'WASM (Prototype bridge)');
  const posted = worker.messages.length;
  bridge.cancel();
  const calls = ['tokenize', 'applyChatTemplate', 'prefetchModelToCache', 'evictModelFromCache'];
  for (const method of calls) {
    assert.equal((await outcome(bridge[method]('x')))[1].message, 'Bridge has been disposed.');
  }
  assert.throws(() => bridge.setLogLevel(1), /disposed/);
  assert.equal(worker.messages.length, posted);
});

test('a worker that never answers dispose is terminated after 800 ms', async (t) => {
  FakeWorker.answers = {};
  const { bridge } = bridgeWithFakes();
  await settled();
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const disposal = bridge.dispose();
  await settled();
  t.mock.timers.tick(799);
  assert.equal(FakeWorker.last.terminated, 0);
  t.mock.timers.tick(1);
  await disposal;
  assert.equal(FakeWorker.last.terminated, 1);
});
