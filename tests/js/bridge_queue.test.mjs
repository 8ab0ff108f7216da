import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

import {
  bridgeWithFakes, FakeWorker, installFakeWorker, LOADED, loadedBridge, outcome, settled, testInBothModes,
} from './fake_worker.mjs';

installFakeWorker();
console.warn = () => {};
beforeEach(() => FakeWorker.reset());

const DISPOSED = 'Bridge has been disposed.';

testInBothModes('cases 38 and 39: calls run one after another in call order', async ({ open }) => {
  const { bridge, port } = open();
  const calls = [
    bridge.tokenize('s'),
    bridge.tokenize('t'),
    bridge.createCompletion('p'),
    bridge.tokenize('t'),
    bridge.embed('e'),
    bridge.detokenize([1]),
    bridge.stateSaveBytes(),
    bridge.scoreNextToken('s', { topK: 1 }),
  ];
  const methods = [
    'tokenize', 'tokenize', 'createCompletion', 'tokenize', 'embed', 'detokenize', 'stateSaveBytes', 'scoreNextToken',
  ];
  for (const [i, call] of calls.entries()) {
    await settled();
    assert.deepEqual(port().methods(), methods.slice(0, i + 1));
    port().result(i + 1, i);
    assert.equal(await call, i);
  }
});

testInBothModes('case 40: a failing call releases the queue', async ({ open }) => {
  const { bridge, port } = open();
  const failing = outcome(bridge.tokenize('x'));
  const next = bridge.createCompletion('y');
  await settled();
  port().error(1, 'Tokenization failed');
  await settled();
  port().result(2, 'text');
  assert.equal((await failing)[1].message, 'Tokenization failed');
  assert.equal(await next, 'text');
});

testInBothModes('callbacks that throw neither fail their call nor wedge the queue', async ({ open }) => {
  const shown = [];
  const { bridge, port } = open({ logger: { warn() {}, error: (text) => shown.push(text) } });
  const fail = () => {
    throw new Error('mine');
  };
  const call = bridge.createCompletion('x', { onToken: fail, onUsage: fail });
  const load = bridge.loadModelFromUrl('m', { progressCallback: fail });
  await settled();
  port().event(1, 'token', { pieceText: 'a', currentText: '' });
  port().event(1, 'usage', {});
  port().result(1, 'a');
  assert.equal(await call, 'a');
  await settled();
  port().event(2, 'progress', { loaded: 1, total: 2 });
  port().result(2, 1, LOADED);
  assert.equal(await load, 1);
  assert.deepEqual(shown, ['onToken', 'onUsage', 'progressCallback'].map((name) => `llamadart: ${name} threw`));
});

testInBothModes('case 41: bridges do not wait for each other', async ({ open }) => {
  outcome(open().bridge.tokenize('x'));
  const { bridge, port } = open();
  const call = bridge.tokenize('y');
  await settled();
  port().result(1, [2]);
  assert.deepEqual(await call, [2]);
});

testInBothModes('case 42: getters answer from the snapshot while an operation runs', async ({ mode, loaded }) => {
  const { bridge, port } = await loaded();
  outcome(bridge.createCompletion('x'));
  await settled();
  const before = port().messages.length;
  assert.equal(bridge.getContextSize(), 512);
  assert.equal(bridge.isGpuActive(), true);
  assert.equal(bridge.getBackendName(), 'WebGPU');
  assert.deepEqual([bridge.supportsVision(), bridge.supportsAudio()], [false, false]);
  const execution = { worker: 'worker', direct: 'main-thread' }[mode];
  assert.equal(bridge.getModelMetadata()['llamadart.webgpu.execution'], execution);
  assert.equal(port().messages.length, before);
});

testInBothModes('case 43: an already aborted call posts nothing and the next one works', async ({ open }) => {
  FakeWorker.answers.createCompletion = ({ id }, worker) => worker.result(id, 'ok');
  const { bridge, port } = open();
  const [, error] = await outcome(bridge.createCompletion('x', { signal: AbortSignal.abort() }));
  assert.equal(error.name, 'AbortError');
  assert.ok(error instanceof DOMException);
  assert.equal(error.message, 'Generation was cancelled.');
  assert.equal(await bridge.createCompletion('y'), 'ok');
  assert.deepEqual(port().methods(), ['createCompletion']);
});

testInBothModes('case 44: an abort while queued rejects at once and leaves the running call alone', async ({ open }) => {
  const { bridge, port } = open();
  const running = bridge.createCompletion('a');
  const controller = new AbortController();
  const { signal } = controller;
  const queued = [
    bridge.createCompletion('b', { signal }),
    bridge.synthesizeSpeech({ text: 'b', signal }),
    bridge.loadModelFromUrl('b', { signal }),
    bridge.loadDraftModel('b', { signal }),
    bridge.loadLoraAdapter('b', { signal }),
  ].map(outcome);
  await settled();
  controller.abort();
  const texts = (await Promise.all(queued)).map(([, error]) => `${error.name}: ${error.message}`);
  const things = ['Generation', 'Text-to-speech synthesis', 'Model load', 'Draft model load', 'LoRA adapter load'];
  assert.deepEqual(texts, things.map((thing) => `AbortError: ${thing} was cancelled.`));
  port().result(1, 'full');
  assert.equal(await running, 'full');
  await settled();
  assert.deepEqual(port().methods(), ['createCompletion']);
});

testInBothModes('cases 46 and 47: cancel reaches the running call at once and once, the queued one runs', async ({ open }) => {
  const { bridge, port } = open();
  const running = bridge.createCompletion('a');
  const next = bridge.tokenize('b');
  await settled();
  bridge.cancel();
  assert.deepEqual(port().methods(), ['createCompletion', 'cancel']);
  bridge.cancel();
  port().result(1, 'part');
  assert.equal(await running, 'part');
  await settled();
  assert.deepEqual(port().methods(), ['createCompletion', 'cancel', 'tokenize']);
  port().result(3, [1]);
  assert.deepEqual(await next, [1]);
});

testInBothModes('cancel without a running call is posted and harms nothing later', async ({ open }) => {
  FakeWorker.answers.tokenize = ({ id }, worker) => worker.result(id, [7]);
  const { bridge, port } = open();
  await bridge.tokenize('x');
  bridge.cancel();
  assert.deepEqual(port().methods(), ['tokenize', 'cancel']);
  assert.deepEqual(await bridge.tokenize('x'), [7]);
});

test('case 49: an aborted completion rejects even when the worker then succeeds, and its state is dropped', async () => {
  const { bridge, worker } = await loadedBridge();
  const controller = new AbortController();
  const pieces = [];
  const call = outcome(bridge.createCompletion('x', { signal: controller.signal, onToken: (piece) => pieces.push(piece) }));
  await settled();
  worker.event(2, 'token', { pieceText: 'a', currentText: '' });
  controller.abort();
  assert.deepEqual(worker.methods().slice(1), ['createCompletion', 'cancel']);
  worker.event(2, 'token', { pieceText: 'b', currentText: '' });
  const metadata = bridge.getModelMetadata();
  worker.result(2, 'ab', { ...LOADED, contextSize: 9, metadata: { 'llamadart.webgpu.runtime_notes': 'late' } });
  assert.equal((await call)[1].name, 'AbortError');
  assert.deepEqual(pieces, ['a']);
  assert.deepEqual([bridge.getContextSize(), bridge.getModelMetadata()], [512, metadata]);
});

test('case 50: a load aborted too late leaves the page without a remembered model', async () => {
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
  assert.deepEqual(worker.methods().slice(1), ['loadModelFromUrl', 'cancel', 'tokenize']);
  worker.crash('gone');
  await settled();
  direct[0].error(direct[0].calls('tokenize')[0].id, 'No model loaded. Call loadModelFromUrl first.');
  assert.match((await call)[1].message, /No model loaded/);
  assert.deepEqual(direct[0].methods(), ['tokenize']); // and no reload of the old model
});

test('case 52: a cancelled call that the worker answers with an error is an abort and never a fallback', async () => {
  const { bridge, direct } = bridgeWithFakes();
  for (const [i, text] of ['worker request cancelled', 'bridge worker timed out', 'Aborted()'].entries()) {
    const call = outcome(bridge.createCompletion('x'));
    await settled();
    bridge.cancel();
    FakeWorker.last.error(2 * i + 1, text);
    assert.equal((await call)[1].name, 'AbortError');
  }
  assert.deepEqual([direct.length, FakeWorker.last.terminated], [0, 0]);
});

testInBothModes('case 53: after a bare cancel the text that the engine returns is delivered', async ({ loaded }) => {
  const { bridge, port } = await loaded();
  const call = bridge.createCompletion('x');
  await settled();
  bridge.cancel();
  port().result(2, 'half a', LOADED);
  assert.equal(await call, 'half a');
});

testInBothModes('case 54: token and progress events after an abort are not delivered', async ({ mode, loaded }) => {
  const { bridge, port } = await loaded();
  const controller = new AbortController();
  const seen = [];
  const call = outcome(bridge.createCompletion('x', { signal: controller.signal, onToken: (piece) => seen.push(piece) }));
  await settled();
  port().event(2, 'token', { pieceText: 'a' });
  controller.abort();
  port().event(2, 'token', { pieceText: 'b' });
  port().result(2, 'ab', LOADED);
  const [text, error] = await call;
  assert.deepEqual([text, error?.name], mode === 'worker' ? [undefined, 'AbortError'] : ['ab', undefined]);
  const again = new AbortController();
  const load = outcome(bridge.loadModelFromUrl('n', { signal: again.signal, progressCallback: (p) => seen.push(p) }));
  await settled();
  again.abort();
  const { id } = port().calls('loadModelFromUrl')[1];
  port().event(id, 'progress', { loaded: 1, total: 2 });
  port().error(id, 'Model load was cancelled.', LOADED);
  assert.equal((await load)[1].name, 'AbortError');
  assert.deepEqual(seen, ['a']);
});

testInBothModes('case 127: an abort or a cancel in onToken ends the generation with what there is', async ({ mode, loaded }) => {
  for (const by of ['abort', 'cancel']) {
    const { bridge, port } = await loaded();
    const controller = new AbortController();
    const finish = [];
    const call = outcome(bridge.createCompletion('x', {
      signal: controller.signal,
      onToken: () => (by === 'abort' ? controller.abort() : bridge.cancel()),
      onUsage: ({ finishReason }) => finish.push(finishReason),
    }));
    await settled();
    port().event(2, 'token', { pieceText: 'a', currentText: 'a' });
    assert.equal(port().methods().at(-1), 'cancel');
    port().event(2, 'usage', { finishReason: 'cancelled' });
    port().result(2, 'a', LOADED);
    const [text, error] = await call;
    if (mode === 'worker' && by === 'abort') assert.equal(error.name, 'AbortError');
    else assert.equal(text, 'a');
    assert.deepEqual(finish, ['cancelled']);
  }
});

testInBothModes('case 124: three tokens, then the usage, then the text', async ({ loaded }) => {
  const { bridge, port } = await loaded();
  const order = [];
  const usage = { completionTokens: 3, finishReason: 'stop', timeToFirstTokenMs: 1, durationMs: 2 };
  const call = bridge.createCompletion('x', {
    onToken: (piece) => order.push(piece),
    onUsage: (told) => order.push(told),
  }).then((text) => order.push(text));
  await settled();
  for (const pieceText of 'abc') port().event(2, 'token', { pieceText });
  port().event(2, 'usage', usage);
  port().result(2, 'abc', LOADED);
  await call;
  assert.deepEqual(order, ['a', 'b', 'c', usage, 'abc']);
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

testInBothModes('no usage for a call that failed', async ({ open }) => {
  const { bridge, port } = open();
  const call = outcome(bridge.createCompletion('x', { onUsage: () => assert.fail('usage of a failed call') }));
  await settled();
  port().event(1, 'usage', { finishReason: 'stop' });
  port().error(1, 'Generation step failed: x');
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

testInBothModes('load progress reaches its callback', async ({ open }) => {
  const { bridge, port } = open();
  const seen = [];
  const call = bridge.loadModelFromUrl('m', { progressCallback: (progress) => seen.push(progress) });
  await settled();
  port().event(1, 'progress', { loaded: 1, total: 2 });
  port().result(1, 1, LOADED);
  assert.equal(await call, 1);
  assert.deepEqual(seen, [{ loaded: 1, total: 2 }]);
});

testInBothModes('case 55: a state load queued behind a model load sees the new context size', async ({ open }) => {
  const { bridge, port } = open();
  outcome(bridge.loadModelFromUrl('m'));
  outcome(bridge.stateLoadBytes(Uint8Array.of(1, 2)));
  await settled();
  port().result(1, 1, LOADED);
  await settled();
  assert.deepEqual(port().calls('stateLoadBytes')[0].args, [Uint8Array.of(1, 2), 512]);
});

test('case 59: a refused log level harms nothing', async () => {
  FakeWorker.answers.setLogLevel = ({ id }, worker) => worker.error(id, 'bridge worker timed out');
  const { bridge, direct } = bridgeWithFakes();
  await settled();
  bridge.setLogLevel(99);
  bridge.setLogLevel(-1.5);
  await settled();
  assert.deepEqual(FakeWorker.last.calls('setLogLevel').map(({ args }) => args[0]), [4, 0]);
  assert.equal(bridge.getModelMetadata()['llamadart.webgpu.worker_fallback_reason'], undefined);
  assert.deepEqual([direct.length, FakeWorker.last.terminated], [0, 0]);
});

testInBothModes('cases 62 and 63: on dispose queued calls reject at once, the running one finishes, then the engine goes', async ({ open }) => {
  const { bridge, port } = open();
  const running = bridge.createCompletion('a');
  const queued = outcome(bridge.tokenize('b'));
  await settled();
  const disposal = bridge.dispose();
  assert.equal((await queued)[1].message, DISPOSED);
  assert.deepEqual(port().methods(), ['createCompletion']);
  port().result(1, 'all of it');
  assert.equal(await running, 'all of it');
  await disposal;
  assert.equal(bridge.dispose(), disposal);
  await settled();
  assert.deepEqual(port().methods(), ['createCompletion', 'dispose']);
  assert.equal(port().terminated, 1);
});

testInBothModes('cases 66 to 67: a log level after dispose throws; cancel during and after it posts nothing', async ({ loaded }) => {
  const { bridge, port } = await loaded();
  const running = bridge.createCompletion('a');
  await settled();
  const disposal = bridge.dispose();
  bridge.cancel();
  assert.throws(() => bridge.setLogLevel(1), { message: DISPOSED });
  port().result(2, 'all of it');
  assert.equal(await running, 'all of it');
  bridge.cancel();
  await disposal;
  bridge.cancel();
  await settled();
  assert.deepEqual(port().methods(), ['loadModelFromUrl', 'createCompletion', 'dispose']);
});

testInBothModes('case 70: after dispose the state is empty', async ({ loaded }) => {
  const { bridge, port } = await loaded();
  await bridge.dispose();
  assert.deepEqual(bridge.getModelMetadata(), { 'llamadart.webgpu.execution': 'main-thread' });
  assert.deepEqual([bridge.getContextSize(), bridge.isGpuActive()], [0, false]);
  assert.equal(bridge.getBackendName(), 'WASM (Prototype bridge)');
  assert.deepEqual([bridge.supportsVision(), bridge.supportsAudio()], [false, false]);
  const posted = port().messages.length;
  const methods = ['tokenize', 'applyChatTemplate', 'prefetchModelToCache', 'evictModelFromCache', 'freeDecisionHead', 'embedBatch'];
  for (const method of methods) {
    const given = method === 'freeDecisionHead' ? 1 : [];
    assert.equal((await outcome(bridge[method](given)))[1].message, DISPOSED, method);
  }
  assert.equal(port().messages.length, posted);
});

test('case 69: a worker that never answers dispose is terminated after 800 ms', async (t) => {
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
