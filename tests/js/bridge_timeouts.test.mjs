import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

import { initBudgetMs, requestBudgetMs, stallBudgetMs } from '../../web/bridge/budgets.js';
import { bridgeWithFakes, FakeWorker, installFakeWorker, LOADED, outcome, settled } from './fake_worker.mjs';

installFakeWorker();
console.warn = () => {};
beforeEach(() => FakeWorker.reset());

test('budgets: method over global over built-in, truncated and clamped', () => {
  const budget = (config, method = 'tokenize', args = []) => requestBudgetMs(config, method, args);
  assert.equal(budget({}), 120_000);
  assert.equal(budget({ workerRequestTimeoutMs: 1 }), 5000);
  assert.equal(budget({ workerRequestTimeoutMs: 6000.9 }), 6000);
  assert.equal(budget({ workerRequestTimeoutMs: 1e9 }), 3_600_000);
  assert.equal(budget({ workerRequestTimeoutMs: -1 }), 120_000);
  assert.equal(budget({ workerRequestTimeoutMs: NaN }), 120_000);
  assert.equal(budget({}, 'loadModelFromUrl'), 180_000);
  assert.equal(budget({ workerRequestTimeoutMs: 9000 }, 'loadModelFromUrl'), 9000);
  assert.equal(budget({ workerRequestTimeoutMs: 9000, workerModelLoadTimeoutMs: 7000 }, 'loadDraftModel'), 7000);
  assert.equal(budget({ workerCompletionTimeoutMs: 7000 }, 'createCompletion'), 7000);
  assert.equal(budget({}, 'createCompletion'), 360_000);
  assert.equal(budget({}, 'loadMultimodalProjector'), 480_000);
  assert.equal(budget({}, 'synthesizeSpeech'), 1_200_000);
  assert.equal(budget({}, 'runDecision', [1, [{}, {}]]), 720_000);
  assert.equal(initBudgetMs({}), 20_000);
  assert.equal(initBudgetMs({ workerInitTimeoutMs: 1 }), 3000);
  assert.equal(initBudgetMs({ workerInitTimeoutMs: 1e9 }), 120_000);
  assert.equal(stallBudgetMs({}, 'createCompletion'), 90_000);
  assert.equal(stallBudgetMs({ workerGenerationStallTimeoutMs: 1e9 }, 'createCompletion'), 300_000);
  assert.equal(stallBudgetMs({}, 'tokenize'), 0);
});

test('a worker that is never ready is ended, and the waiting call moves to the main thread', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  FakeWorker.readyAtOnce = false;
  const { bridge, direct } = bridgeWithFakes();
  FakeWorker.readyAtOnce = true; // for the main thread's engine
  const call = bridge.tokenize('x');
  t.mock.timers.tick(20_000);
  await settled();
  await settled();
  assert.equal(FakeWorker.last.terminated, 1);
  direct[0].result(1, [1]);
  assert.deepEqual(await call, [1]);
  const metadata = bridge.getModelMetadata();
  assert.equal(metadata['llamadart.webgpu.worker_fallback_reason'], 'Bridge worker init timeout (20000ms)');
});

test('a silent worker is given up after the request budget; its late reply is dropped', async (t) => {
  const { bridge, direct } = bridgeWithFakes({ workerRequestTimeoutMs: 6000 });
  await settled();
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const call = bridge.tokenize('x');
  const worker = FakeWorker.last;
  t.mock.timers.tick(6000);
  await settled();
  await settled();
  worker.result(1, ['late']);
  direct[0].result(1, [1]);
  assert.deepEqual(await call, [1]);
  assert.equal(
    bridge.getModelMetadata()['llamadart.webgpu.worker_fallback_reason'],
    'Worker request timeout (tokenize, 6000ms)',
  );
});

test('progress keeps a load alive', async (t) => {
  const { bridge, direct } = bridgeWithFakes({ workerModelLoadTimeoutMs: 6000 });
  await settled();
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const load = bridge.loadModelFromUrl('m.gguf');
  for (let i = 0; i < 5; i++) {
    t.mock.timers.tick(5000);
    FakeWorker.last.event(1, 'progress', { loaded: i, total: 5 });
  }
  FakeWorker.last.result(1, 1, LOADED);
  assert.equal(await load, 1);
  assert.equal(direct.length, 0);
});

test('a completion without signs of life is cancelled and moved; progress events are none', async (t) => {
  const { bridge, direct } = bridgeWithFakes();
  await settled();
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const call = outcome(bridge.createCompletion('x'));
  const worker = FakeWorker.last;
  t.mock.timers.tick(80_000);
  worker.event(1, 'prefill', {});
  t.mock.timers.tick(80_000);
  worker.event(1, 'token', { pieceText: 'a', currentText: '' });
  t.mock.timers.tick(80_000);
  worker.event(1, 'progress', {});
  t.mock.timers.tick(10_000);
  assert.deepEqual(worker.methods(), ['createCompletion', 'cancel']);
  await settled();
  t.mock.timers.tick(800);
  await settled();
  direct[0].result(1, 'from here', LOADED);
  assert.equal((await call)[0], 'from here');
  assert.equal(
    bridge.getModelMetadata()['llamadart.webgpu.worker_fallback_reason'],
    'Bridge worker completion stalled for 90000ms.',
  );
});
