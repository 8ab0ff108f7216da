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
beforeEach(() => {
  FakeWorker.reset();
  console.warn = () => {};
});

const NOTES = 'llamadart.webgpu.runtime_notes';
const REASON = 'llamadart.webgpu.worker_fallback_reason';

/** The main thread's engine: takes a load, answers anything else with the method's name. */
function serve(port, state = LOADED) {
  for (const { id, method } of port.calls().filter(({ id }) => !port.served?.has(id))) {
    (port.served ??= new Set()).add(id);
    port.result(id, method === 'loadModelFromUrl' ? 1 : `direct ${method}`, state);
  }
}

async function failCompletion(text, crash = false) {
  const parts = await loadedBridge();
  const call = outcome(parts.bridge.createCompletion('x'));
  await settled();
  if (crash) parts.worker.crash(text);
  else parts.worker.error(2, text, LOADED);
  for (let i = 0; i < 4; i++) {
    await settled();
    if (parts.direct[0]) serve(parts.direct[0]);
  }
  return { ...parts, outcome: await call };
}

for (const text of [
  'Generation step failed: Grammar rejected every candidate token',
  'Failed to start generation: the prompt has 9 tokens, which exceeds the context size of 8 tokens',
]) {
  test(`an answer of the engine goes back unchanged: ${text.slice(0, 40)}`, async () => {
    const { bridge, worker, direct, outcome: [, error] } = await failCompletion(text);
    assert.equal(error.message, text);
    assert.equal(direct.length, 0);
    outcome(bridge.tokenize('y'));
    await settled();
    assert.equal(worker.methods().at(-1), 'tokenize');
  });
}

for (const [text, crash] of [
  ['Aborted(undefined). Build with -sASSERTIONS for more info.', false],
  ['Aborted(native code called abort())', false],
  ['the tab is out of luck', true],
  ['', true],
]) {
  test(`a lost worker: the main thread reloads the model and repeats the call (${text || 'no text'})`, async () => {
    const { bridge, worker, direct, outcome: [value] } = await failCompletion(text, crash);
    assert.equal(value, 'direct createCompletion');
    assert.deepEqual(direct[0].methods(), ['loadModelFromUrl', 'createCompletion']);
    assert.deepEqual(direct[0].calls()[0].args, ['https://e.test/app/m.gguf', { nCtx: 512 }]);
    const metadata = bridge.getModelMetadata();
    const reason = text || 'Bridge worker crashed';
    assert.equal(metadata['llamadart.webgpu.execution'], 'main-thread');
    assert.equal(metadata[REASON], reason);
    assert.equal(globalThis.__llamadartBridgeWorkerFallbackReason, reason);
    assert.equal(metadata[NOTES], `worker_fallback:${reason};worker_fallback_reload_model`);
    assert.equal(worker.terminated, 1);
  });
}

test('each text method survives a request timeout, and returns an ordinary error as it is', async () => {
  const calls = {
    tokenize: (b) => b.tokenize('x'),
    detokenize: (b) => b.detokenize([1]),
    embed: (b) => b.embed('x'),
    embedBatch: (b) => b.embedBatch(['x']),
    scoreNextToken: (b) => b.scoreNextToken('x', { topK: 1 }),
    applyChatTemplate: (b) => b.applyChatTemplate([]),
  };
  const warnings = [];
  console.warn = (text) => warnings.push(text);
  for (const [method, call] of Object.entries(calls)) {
    const { bridge, worker, direct } = await loadedBridge();
    const ordinary = outcome(call(bridge));
    await settled();
    worker.error(2, `${method} failed`);
    assert.equal((await ordinary)[1].message, `${method} failed`);
    assert.deepEqual([warnings.splice(0), direct.length, worker.terminated], [[], 0, 0]);
    const lost = outcome(call(bridge));
    await settled();
    worker.error(3, `Worker request timeout (${method}, 5000ms)`);
    for (let i = 0; i < 4; i++) {
      await settled();
      if (direct[0]) serve(direct[0]);
    }
    assert.equal((await lost)[0], `direct ${method}`);
    assert.equal(warnings.splice(0).length, 1);
  }
});

test('an error with a code is an answer, whatever its text says', async () => {
  const { bridge, worker, direct } = await loadedBridge();
  const calls = [() => bridge.tokenize('x'), () => bridge.getTextToSpeechCapabilities(), () => bridge.loadModelFromUrl('n')];
  for (const [i, call] of calls.entries()) {
    const answer = outcome(call());
    await settled();
    worker.emit({ type: 'error', id: i + 2, message: 'RuntimeError: not found, timed out', code: 'INTERNAL_ERROR', state: LOADED });
    assert.equal((await answer)[1].code, 'INTERNAL_ERROR');
  }
  assert.deepEqual([direct.length, FakeWorker.all.length], [0, 1]);
});

test('state methods never fall back, and a missing feature never costs the worker', async () => {
  const { bridge, worker, direct } = await loadedBridge();
  const save = outcome(bridge.stateSaveBytes());
  await settled();
  worker.error(2, 'Worker request timeout (stateSaveBytes, 5000ms)');
  assert.match((await save)[1].message, /timeout/);
  const projector = outcome(bridge.loadMultimodalProjector('p.gguf'));
  await settled();
  worker.emit({ type: 'error', id: 3, message: 'x is not available in this build', code: 'UNSUPPORTED' });
  assert.match((await projector)[1].message, /not available/);
  assert.equal(direct.length, 0);
});

test('a worker that crashed under a call that cannot move is not asked again', async () => {
  const { bridge, worker, direct } = await loadedBridge();
  const save = outcome(bridge.stateSaveBytes());
  await settled();
  worker.crash('gone');
  assert.equal((await save)[1].message, 'gone');
  const call = bridge.tokenize('x');
  for (let i = 0; i < 4; i++) {
    await settled();
    if (direct[0]) serve(direct[0]);
  }
  assert.equal(await call, 'direct tokenize');
  assert.equal(worker.calls('tokenize').length, 0);
});

test('an error in an idle worker is not taken for its end', async () => {
  const { bridge, worker } = await loadedBridge();
  worker.crash('something minor');
  const call = bridge.tokenize('x');
  await settled();
  worker.result(worker.calls('tokenize')[0].id, [1]);
  assert.deepEqual(await call, [1]);
});

test('capability probes of speech fall back on any error', async () => {
  const { bridge, worker, direct } = await loadedBridge();
  const call = outcome(bridge.getTextToSpeechCapabilities());
  await settled();
  worker.error(2, 'anything');
  for (let i = 0; i < 4; i++) {
    await settled();
    if (direct[0]) serve(direct[0]);
  }
  assert.equal((await call)[0], 'direct getTextToSpeechCapabilities');
});

test('a recoverable file error replaces the worker once and retries there', async () => {
  const { bridge, direct } = bridgeWithFakes();
  const load = bridge.loadModelFromUrl('m.gguf');
  await settled();
  const [first] = FakeWorker.all;
  first.error(1, 'FS error: no such file or directory');
  await settled();
  const second = FakeWorker.last;
  assert.notEqual(second, first);
  assert.equal(first.terminated, 1);
  await settled();
  const labels = [first, second].map((worker) => worker.calls()[0]);
  assert.deepEqual(labels.map(({ operationId, workerGeneration }) => [operationId, workerGeneration]), [[1, 1], [1, 2]]);
  second.result(1, 1, LOADED);
  assert.equal(await load, 1);
  assert.equal(bridge.getContextSize(), 512);
  assert.equal(direct.length, 0);
});

test('a restart whose retry fails leaves no model, and the old one is not brought back', async () => {
  const { bridge } = await loadedBridge();
  const load = outcome(bridge.loadModelFromUrl('other.gguf'));
  await settled();
  FakeWorker.last.error(2, 'FS error', LOADED);
  await settled();
  await settled();
  FakeWorker.last.error(1, 'FS error again', EMPTY);
  assert.equal((await load)[1].message, 'FS error again');
  assert.equal(FakeWorker.all.length, 2);
  assert.equal(bridge.getContextSize(), 0);
  outcome(bridge.tokenize('x'));
  await settled();
  assert.deepEqual(FakeWorker.last.methods(), ['loadModelFromUrl', 'tokenize']);
});

for (const text of [
  'Failed to fetch model shard: 404 Not Found',
  'Array buffer allocation failed',
  'Aborted(native code called abort())',
]) {
  test(`a load that fails with "${text}" is rejected as it is and keeps the worker`, async () => {
    const { bridge, direct } = bridgeWithFakes();
    const load = outcome(bridge.loadModelFromUrl('m.gguf'));
    await settled();
    FakeWorker.last.error(1, text, EMPTY);
    assert.equal((await load)[1].message, text);
    assert.equal(FakeWorker.all.length, 1);
    assert.equal(FakeWorker.last.terminated, 0);
    assert.equal(direct.length, 0);
  });
}

test('a load that times out moves to the main thread with its callbacks, without a restart', async () => {
  const { bridge, direct } = bridgeWithFakes();
  const seen = [];
  const load = bridge.loadModelFromUrl('m.gguf', { nCtx: 64, progressCallback: (progress) => seen.push(progress) });
  await settled();
  FakeWorker.last.error(1, 'Worker request timeout');
  await settled();
  await settled();
  assert.deepEqual(direct[0].calls()[0].args, ['https://e.test/app/m.gguf', { nCtx: 64 }]);
  direct[0].event(1, 'progress', { loaded: 1, total: 1 });
  direct[0].result(1, 1, LOADED);
  assert.equal(await load, 1);
  assert.deepEqual(seen, [{ loaded: 1, total: 1 }]);
  assert.equal(bridge.getModelMetadata()[NOTES], 'worker_fallback:Worker request timeout');
  assert.equal(FakeWorker.all.length, 1);
});

test('a failed load keeps the model that the engine still reports', async () => {
  for (const [bytes, contextSize] of [['4', 512], ['0', 0]]) {
    const { bridge } = await loadedBridge();
    const load = outcome(bridge.loadModelFromUrl('other.gguf'));
    await settled();
    const state = { ...(bytes === '0' ? EMPTY : LOADED), metadata: { 'llamadart.webgpu.model_bytes': bytes } };
    FakeWorker.last.error(2, 'Failed to release the loaded model', state);
    await load;
    assert.equal(bridge.getContextSize(), contextSize);
  }
});

test('a recovery whose reload fails ends with that error, and a new load works', async () => {
  const { bridge, worker, direct } = await loadedBridge();
  const call = outcome(bridge.tokenize('x'));
  await settled();
  worker.crash('gone');
  await settled();
  await settled();
  direct[0].error(direct[0].calls('loadModelFromUrl')[0].id, 'Failed to load GGUF model: x', EMPTY);
  assert.equal((await call)[1].message, 'Failed to load GGUF model: x');
  assert.equal(direct[0].terminated, 1);
  const next = outcome(bridge.tokenize('y'));
  await settled();
  direct[1].error(1, 'No model loaded. Call loadModelFromUrl first.', EMPTY);
  assert.match((await next)[1].message, /No model loaded/);
  const load = bridge.loadModelFromUrl('n.gguf');
  await settled();
  direct[1].result(2, 1, LOADED);
  assert.equal(await load, 1);
});

test('a list of URLs is replayed as a list', async () => {
  const { bridge, direct } = bridgeWithFakes();
  const load = bridge.loadModelFromUrl(['a-1.gguf', 'a-2.gguf']);
  await settled();
  FakeWorker.last.result(1, 1, LOADED);
  await load;
  outcome(bridge.tokenize('x'));
  await settled();
  FakeWorker.last.crash('gone');
  await settled();
  await settled();
  assert.deepEqual(direct[0].calls()[0].args[0], ['https://e.test/app/a-1.gguf', 'https://e.test/app/a-2.gguf']);
});

test('usage of an attempt that was lost is dropped; the retry reports its own', async () => {
  const { bridge, worker, direct } = await loadedBridge();
  const usages = [];
  const call = bridge.createCompletion('x', { onUsage: ({ completionTokens }) => usages.push(completionTokens) });
  await settled();
  worker.event(2, 'usage', { completionTokens: 1 });
  worker.crash('gone');
  await settled();
  await settled();
  serve(direct[0]);
  await settled();
  direct[0].event(direct[0].calls('createCompletion')[0].id, 'usage', { completionTokens: 2 });
  serve(direct[0]);
  await call;
  assert.deepEqual(usages, [2]);
});

test('case 132: usage that a worker sends after it was given up is dropped', async () => {
  const { bridge, worker, direct } = await loadedBridge();
  const usages = [];
  const call = bridge.createCompletion('x', { onUsage: ({ completionTokens }) => usages.push(completionTokens) });
  await settled();
  worker.error(2, 'Worker request timeout (createCompletion, 5000ms)');
  await settled();
  await settled();
  worker.event(2, 'usage', { completionTokens: 1 });
  serve(direct[0]);
  await settled();
  worker.event(2, 'usage', { completionTokens: 1 });
  serve(direct[0]);
  await call;
  assert.deepEqual(usages, []);
});

test('an abort during the reload reaches the engine that reloads', async () => {
  const { bridge, worker, direct } = await loadedBridge();
  const controller = new AbortController();
  const call = outcome(bridge.createCompletion('x', { signal: controller.signal }));
  await settled();
  worker.crash('gone');
  await settled();
  await settled();
  controller.abort();
  assert.deepEqual(direct[0].methods(), ['loadModelFromUrl', 'cancel']);
  direct[0].error(direct[0].calls()[0].id, 'Model load was cancelled.', EMPTY);
  assert.equal((await call)[1].message, 'Generation was cancelled.');
});

test('on the main thread an abort during generation resolves with the text there is', async () => {
  const { bridge, direct } = bridgeWithFakes({ disableWorker: true });
  const controller = new AbortController();
  const finish = [];
  const onUsage = (usage) => finish.push(usage.finishReason);
  const call = bridge.createCompletion('x', { signal: controller.signal, onUsage });
  await settled();
  controller.abort();
  direct[0].event(1, 'usage', { finishReason: 'cancelled' });
  direct[0].result(1, 'part', LOADED);
  assert.equal(await call, 'part');
  assert.deepEqual(finish, ['cancelled']);
});

test('dispose during a fallback waits for its owner and for the old worker', async (t) => {
  const revoked = t.mock.method(URL, 'revokeObjectURL');
  FakeWorker.refuse = (url) => (/^(blob|direct):/.test(url) ? null : new Error('cross-origin'));
  const { bridge, worker, direct } = await loadedBridge();
  const call = bridge.tokenize('x');
  await settled();
  worker.crash('gone');
  await settled();
  await settled();
  const disposal = bridge.dispose();
  serve(direct[0]);
  await settled();
  serve(direct[0]);
  assert.equal(await call, 'direct tokenize');
  await disposal;
  assert.equal(worker.terminated, 1);
  assert.deepEqual(revoked.mock.calls.map(({ arguments: [url] }) => url), [worker.url]);
  assert.equal(direct[0].methods().at(-1), 'dispose');
  assert.equal(REASON in bridge.getModelMetadata(), false);
});

test('warnings follow the log level and are not repeated', async () => {
  const shown = [];
  console.warn = (text) => shown.push(text);
  FakeWorker.refuse = () => new Error('blocked');
  bridgeWithFakes({ logLevel: 0 });
  bridgeWithFakes({ logLevel: 4 });
  assert.deepEqual(shown, []);
  bridgeWithFakes({ logLevel: 2 });
  assert.deepEqual(shown, ['llamadart: bridge worker unavailable, falling back to main thread (blocked)']);
});
