import assert from 'node:assert/strict';
import { test } from 'node:test';

import { createEngineHost } from '../../web/bridge/engine_host.js';
import { settled } from './fake_worker.mjs';

/** A Python host that records the calls it is given and lets the test post for it. */
function fakeEngine() {
  const engine = { calls: [], closed: 0, destroyed: 0, loads: 0 };
  engine.load = async () => {
    engine.loads += 1;
    return {
      createHost(post, config, direct) {
        Object.assign(engine, { post, config, direct });
        return {
          handle: (message) => engine.calls.push(message),
          close: () => (engine.closed += 1),
          destroy: () => (engine.destroyed += 1),
        };
      },
    };
  };
  return engine;
}

test('init boots and answers ready once; other messages are ignored', async () => {
  const engine = fakeEngine();
  const posted = [];
  const host = createEngineHost({ post: (message) => posted.push(message), load: engine.load });
  host.handle({ type: 'other' });
  host.handle(null);
  host.handle({ type: 'init', config: { threads: 2 } });
  host.handle({ type: 'init', config: {} });
  await settled();
  assert.deepEqual(posted, [{ type: 'ready' }]);
  assert.deepEqual([engine.loads, engine.config, engine.direct], [1, { threads: 2 }, false]);
});

test('a call before init is answered with an error under its id', () => {
  const posted = [];
  createEngineHost({ post: (message) => posted.push(message) }).handle({ type: 'call', id: 4, method: 'tokenize' });
  assert.deepEqual(posted, [{ type: 'error', id: 4, message: 'Bridge worker is not initialized' }]);
});

test('calls wait for the engine and reach it in order', async () => {
  const engine = fakeEngine();
  const host = createEngineHost({ post() {}, load: engine.load });
  host.handle({ type: 'init', config: {} });
  host.handle({ type: 'call', id: 1, method: 'loadModelFromUrl' });
  host.handle({ type: 'call', id: 2, method: 'cancel' });
  await settled();
  assert.deepEqual(engine.calls.map(({ id }) => id), [1, 2]);
});

test('an engine that does not start fails the call, and the next call starts it again', async () => {
  const engine = fakeEngine();
  const posted = [];
  let broken = true;
  const load = () => (broken ? Promise.reject(new Error('Python could not be started')) : engine.load());
  const host = createEngineHost({ post: (message) => posted.push(message), load });
  host.handle({ type: 'init', config: {} });
  host.handle({ type: 'call', id: 1, method: 'tokenize' });
  await settled();
  assert.deepEqual(posted[1], { type: 'error', id: 1, message: 'Python could not be started' });
  broken = false;
  host.handle({ type: 'call', id: 2, method: 'tokenize' });
  await settled();
  assert.deepEqual(engine.calls.map(({ id }) => id), [2]);
});

test('a start that takes too long is an error of its own', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const posted = [];
  const host = createEngineHost({ post: (message) => posted.push(message), load: () => new Promise(() => {}) });
  host.handle({ type: 'init', config: { coreInitTimeoutMs: 1 } });
  host.handle({ type: 'call', id: 1, method: 'tokenize' });
  await settled();
  t.mock.timers.tick(10_000);
  await settled();
  assert.equal(posted[1].message, 'Bridge core init timeout (10000ms)');
});

test('the engine posts JSON with its buffers beside it, which are transferred once each', async () => {
  const engine = fakeEngine();
  const posted = [];
  const host = createEngineHost({ post: (...message) => posted.push(message), load: engine.load });
  host.handle({ type: 'init', config: {} });
  await settled();
  const bytes = new Uint8Array([1, 2]);
  engine.post('{"type":"result","id":1,"value":[{"$buffer":0},{"$buffer":0},null]}', [bytes]);
  engine.post('{"type":"result","id":2,"value":null}');
  assert.deepEqual(posted[1], [{ type: 'result', id: 1, value: [bytes, bytes, null] }, [bytes.buffer]]);
  assert.deepEqual(posted[2], [{ type: 'result', id: 2, value: null }, []]);
});

test('close lets go of the Python host, also when it comes up later', async () => {
  const engine = fakeEngine();
  const host = createEngineHost({ post() {}, load: engine.load });
  host.handle({ type: 'init', config: {} });
  host.handle({ type: 'call', id: 1, method: 'tokenize' });
  host.close();
  await settled();
  assert.deepEqual([engine.closed, engine.destroyed, engine.calls.length], [1, 1, 0]);
});

test('the worker host refuses to run outside a worker', async () => {
  const { enableBridgeWorkerHost } = await import('../../web/bridge/worker_host.js');
  assert.throws(() => enableBridgeWorkerHost(), { message: 'Bridge worker host can only run inside a worker context' });
  const posted = [];
  globalThis.self = { postMessage: (message) => posted.push(message) };
  enableBridgeWorkerHost();
  const { onmessage } = globalThis.self;
  enableBridgeWorkerHost();
  assert.equal(globalThis.self.onmessage, onmessage);
  onmessage({ data: { type: 'call', id: 1, method: 'tokenize', args: [] } });
  assert.equal(posted[0].message, 'Bridge worker is not initialized');
  delete globalThis.self;
});
