// Numbered cases of the wire protocol that have no test of their own elsewhere; tests/web/test_protocol_cases.py keeps the list.
// Each case drives the page's bridge over a fake Worker.

import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

import {
  bridgeWithFakes, EMPTY, FakeWorker, installFakeWorker, LOADED, loadedBridge, outcome, settled, unhandledRejections,
} from './fake_worker.mjs';

installFakeWorker();
beforeEach(() => {
  FakeWorker.reset();
  console.warn = () => {};
});

const id = (worker, method) => worker.calls(method).at(-1).id;
const execution = (bridge) => bridge.getModelMetadata()['llamadart.webgpu.execution'];

const CASES = {
  '10: the completion budget of the config reaches the worker’s completions': async (t) => {
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const { bridge, direct } = bridgeWithFakes({ workerCompletionTimeoutMs: 7000 });
    await settled();
    const call = bridge.createCompletion('x');
    t.mock.timers.tick(6999);
    await settled();
    assert.equal(direct.length, 0);
    t.mock.timers.tick(1);
    for (let i = 0; i < 4; i++) await settled();
    direct[0].result(id(direct[0], 'createCompletion'), 'text');
    assert.equal(await call, 'text');
    assert.equal(
      bridge.getModelMetadata()['llamadart.webgpu.worker_fallback_reason'],
      'Worker request timeout (createCompletion, 7000ms)',
    );
  },

  '30: a load posts neither signal nor callback': async () => {
    const { bridge } = bridgeWithFakes();
    outcome(bridge.loadModelFromUrl('m', { signal: new AbortController().signal, progressCallback() {}, nCtx: 5 }));
    await settled();
    assert.deepEqual(FakeWorker.last.calls()[0].args[1], { nCtx: 5 });
  },

  '37: an error without text becomes "Worker request failed", which is a lost worker': async () => {
    const { bridge, worker, direct } = await loadedBridge();
    const call = outcome(bridge.tokenize('x'));
    await settled();
    worker.error(id(worker, 'tokenize'), '');
    for (let i = 0; i < 3; i++) await settled();
    direct[0].result(id(direct[0], 'loadModelFromUrl'), 1, LOADED);
    await settled();
    direct[0].result(id(direct[0], 'tokenize'), [4]);
    assert.deepEqual(await call, [[4]]);
    assert.equal(globalThis.__llamadartBridgeWorkerFallbackReason, 'Worker request failed');
  },

  '45: queued speech and a queued load abort without being posted': async () => {
    const { bridge, worker } = await loadedBridge();
    const running = bridge.tokenize('x');
    const controllers = [new AbortController(), new AbortController()];
    const queued = [
      outcome(bridge.synthesizeSpeech({ text: 'a', signal: controllers[0].signal })),
      outcome(bridge.loadModelFromUrl('n', { signal: controllers[1].signal })),
    ];
    await settled();
    for (const controller of controllers) controller.abort();
    for (const [, error] of await Promise.all(queued)) assert.equal(error.name, 'AbortError');
    worker.result(id(worker, 'tokenize'), [1]);
    assert.deepEqual(await running, [1]);
    assert.deepEqual(worker.methods().slice(1), ['tokenize']);
  },

  '51: aborted speech rejects although the worker succeeds': async () => {
    const { bridge, worker } = await loadedBridge();
    const controller = new AbortController();
    const call = outcome(bridge.synthesizeSpeech({ text: 'a', signal: controller.signal }));
    await settled();
    controller.abort();
    worker.result(id(worker, 'synthesizeSpeech'), { pcm: new Float32Array(1) });
    const [, error] = await call;
    assert.deepEqual([error.name, error.message], ['AbortError', 'Text-to-speech synthesis was cancelled.']);
  },

  '57: empty state bytes are refused and nothing is posted': async () => {
    const { bridge, worker } = await loadedBridge();
    for (const empty of [new Uint8Array(), new ArrayBuffer(0), [], undefined]) {
      assert.equal((await outcome(bridge.stateLoadBytes(empty)))[1].message, 'State bytes are empty.');
    }
    assert.deepEqual(worker.methods(), ['loadModelFromUrl']);
  },

  '58: the late reply of a worker that was replaced changes nothing': async (t) => {
    const { bridge, worker, direct } = await loadedBridge();
    t.mock.timers.enable({ apis: ['setTimeout'] });
    const call = outcome(bridge.tokenize('x'));
    await settled();
    t.mock.timers.tick(120_000);
    for (let i = 0; i < 3; i++) await settled();
    direct[0].result(id(direct[0], 'loadModelFromUrl'), 1, { ...LOADED, contextSize: 99 });
    await settled();
    worker.result(id(worker, 'tokenize'), ['late'], { ...LOADED, contextSize: 7 });
    direct[0].result(id(direct[0], 'tokenize'), [1]);
    assert.deepEqual(await call, [[1]]);
    assert.equal(bridge.getContextSize(), 99);
  },

  '64: dispose is one promise, also from inside a logger': async () => {
    let inner;
    const { bridge, direct } = bridgeWithFakes({ logger: { warn: () => (inner = bridge.dispose()) } });
    await settled();
    const call = outcome(bridge.tokenize('x'));
    await settled();
    FakeWorker.last.crash('gone');
    for (let i = 0; i < 4; i++) await settled();
    direct[0]?.result(id(direct[0], 'tokenize'), [1]);
    await call;
    const outer = bridge.dispose();
    assert.equal(inner, outer);
    await outer;
    assert.equal(bridge.dispose(), outer);
  },

  '71: the late failure of an old call after dispose is nobody’s': async () => {
    const unhandled = unhandledRejections();
    const { bridge, worker } = await loadedBridge();
    const call = outcome(bridge.tokenize('x'));
    await settled();
    const disposal = bridge.dispose();
    worker.result(id(worker, 'tokenize'), [1]);
    await call;
    await disposal;
    worker.error(id(worker, 'tokenize'), 'late');
    worker.crash('late');
    await settled();
    unhandled.stop();
    assert.deepEqual(unhandled.reasons, []);
    assert.equal(FakeWorker.all.length, 1);
  },

  '83: a load that runs out of memory is rejected and keeps the worker': async () => {
    const { bridge, worker, direct } = await loadedBridge();
    const call = outcome(bridge.loadModelFromUrl('n'));
    await settled();
    worker.error(id(worker, 'loadModelFromUrl'), 'Array buffer allocation failed', EMPTY);
    assert.equal((await call)[1].message, 'Array buffer allocation failed');
    assert.deepEqual([execution(bridge), direct.length, worker.terminated], ['worker', 0, 0]);
  },

  '85: a failed load keeps the model that the worker still reports, and forgets the one it does not': async () => {
    for (const [state, size] of [[LOADED, 512], [EMPTY, 0]]) {
      const { bridge, worker } = await loadedBridge();
      const call = outcome(bridge.loadModelFromUrl('n'));
      await settled();
      worker.error(id(worker, 'loadModelFromUrl'), 'Failed to fetch model shard: 404 Not Found', state);
      await call;
      assert.equal(bridge.getContextSize(), size);
    }
  },

  '128: a completion that fails or was aborted before it started reports no usage': async () => {
    const { bridge, worker } = await loadedBridge();
    const usages = [];
    const failing = outcome(bridge.createCompletion('x', { onUsage: (usage) => usages.push(usage) }));
    await settled();
    worker.error(id(worker, 'createCompletion'), 'Generation step failed: no');
    await failing;
    await outcome(bridge.createCompletion('x', { signal: AbortSignal.abort(), onUsage: (usage) => usages.push(usage) }));
    assert.deepEqual(usages, []);
  },

  '129: usage of a generation that was aborted comes before the AbortError': async () => {
    const { bridge, worker } = await loadedBridge();
    const controller = new AbortController();
    const order = [];
    const call = bridge
      .createCompletion('x', { signal: controller.signal, onUsage: () => order.push('usage') })
      .catch((error) => order.push(error.name));
    await settled();
    controller.abort();
    worker.event(id(worker, 'createCompletion'), 'usage', { finishReason: 'cancelled' });
    worker.result(id(worker, 'createCompletion'), 'x', LOADED);
    await call;
    assert.deepEqual(order, ['usage', 'AbortError']);
  },

  '130: usage after a bare cancel comes before the text': async () => {
    const { bridge, worker } = await loadedBridge();
    const order = [];
    const call = bridge.createCompletion('x', { onUsage: () => order.push('usage') }).then((text) => order.push(text));
    await settled();
    bridge.cancel();
    worker.event(id(worker, 'createCompletion'), 'usage', {});
    worker.result(id(worker, 'createCompletion'), 'ab', LOADED);
    await call;
    assert.deepEqual(order, ['usage', 'ab']);
  },

  '133: without onUsage the posted options know nothing of it': async () => {
    const { bridge, worker } = await loadedBridge();
    outcome(bridge.createCompletion('x', { nPredict: 3 }));
    await settled();
    assert.deepEqual(worker.calls('createCompletion')[0].args, ['x', { nPredict: 3 }]);
  },

  '146: capabilities before a load are false in both modes': async () => {
    for (const disableWorker of [false, true]) {
      const { bridge, direct } = bridgeWithFakes({ disableWorker });
      const call = bridge.getCompletionCapabilities();
      await settled();
      const port = disableWorker ? direct[0] : FakeWorker.last;
      port.result(id(port, 'getCompletionCapabilities'), {});
      const { speculativeDecoding, ...flags } = await call;
      assert.deepEqual(flags, { presencePenalty: false, minP: false, thinkingBudget: false });
      assert.deepEqual(new Set(Object.values(speculativeDecoding)), new Set([false]));
      assert.equal(Object.keys(speculativeDecoding).length, 10);
    }
  },

  '168: after a replacement that failed calls say so and a later load works': async () => {
    const { bridge, worker } = await loadedBridge();
    const failing = outcome(bridge.loadModelFromUrl('n'));
    await settled();
    worker.error(id(worker, 'loadModelFromUrl'), 'Failed to fetch model shard: 404 Not Found', EMPTY);
    await failing;
    const call = outcome(bridge.tokenize('x'));
    await settled();
    worker.error(id(worker, 'tokenize'), 'No model loaded. Call loadModelFromUrl first.', EMPTY);
    assert.match((await call)[1].message, /^No model loaded/);
    assert.equal(worker.calls('loadModelFromUrl').length, 2);
    const loading = bridge.loadModelFromUrl('m');
    await settled();
    worker.result(id(worker, 'loadModelFromUrl'), 1, LOADED);
    assert.equal(await loading, 1);
  },

  '186: the note of a completion shows right after it': async () => {
    const { bridge, worker } = await loadedBridge();
    const call = bridge.createCompletion('x');
    await settled();
    const metadata = { ...LOADED.metadata, 'llamadart.webgpu.runtime_notes': 'generation_stopped_context_limit' };
    worker.result(id(worker, 'createCompletion'), 'x', { ...LOADED, metadata });
    await call;
    assert.equal(bridge.getModelMetadata()['llamadart.webgpu.runtime_notes'], 'generation_stopped_context_limit');
  },
};

for (const [title, run] of Object.entries(CASES)) test(`case ${title}`, run);
