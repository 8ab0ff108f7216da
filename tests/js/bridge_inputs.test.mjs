// Calls about embeddings, speech, decision heads and adapters: what the page checks by itself, and what it sends.

import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

import { EmbeddingError } from '../../web/llama_webgpu_bridge.js';
import { FakeWorker, installFakeWorker, LOADED, loadedBridge, outcome, settled, testInBothModes } from './fake_worker.mjs';

installFakeWorker();
console.warn = () => {};
beforeEach(() => FakeWorker.reset());

async function refusal(call) {
  const [value, error] = await outcome(call);
  assert.ok(error, `gave ${JSON.stringify(value)}`);
  return error;
}

async function assertRefused(call, type, text) {
  const error = await refusal(call);
  assert.equal(error.constructor, type, error.message);
  assert.ok(error.message.includes(text), `${error.message} lacks ${text}`);
}

/** Answers a call with `value` and returns what the bridge makes of it. */
async function answered(port, method, call, value) {
  await settled();
  const sent = port().calls(method).at(-1);
  port().result(sent.id, value);
  return { sent, value: await call };
}

testInBothModes('case 165: heads come from a URL or bytes; the rest is refused and nothing is posted', async ({ loaded }) => {
  const { bridge, port } = await loaded();
  await assertRefused(bridge.loadDecisionHead([1, 2, 3]), TypeError, 'must be a URL string, an ArrayBuffer or a typed array');
  await assertRefused(bridge.loadDecisionHead(new Uint8Array()), Error, 'Decision head bytes are empty.');
  await assertRefused(bridge.loadDecisionHead(' '), Error, 'Decision head URL is empty.');
  await assertRefused(bridge.loadDecisionHead('h', { configJson: {} }), TypeError, 'configJson must be a string');
  await assertRefused(bridge.loadLoraAdapter([1]), TypeError, 'must be a URL string, an ArrayBuffer or a typed array');
  await assertRefused(bridge.loadLoraAdapter(new ArrayBuffer(0)), Error, 'LoRA adapter bytes are empty.');
  await assertRefused(bridge.loadLoraAdapter(''), Error, 'LoRA adapter URL is empty.');
  assert.deepEqual(port().methods(), ['loadModelFromUrl']);
});

testInBothModes('case 152: adapter handles and scales are checked before anything is posted', async ({ loaded }) => {
  const { bridge, port } = await loaded();
  for (const handle of [0, 1.5, -1, '1', undefined]) {
    await assertRefused(bridge.setLoraAdapter(handle), TypeError, 'handle must be a positive integer, got ');
    await assertRefused(bridge.removeLoraAdapter(handle), TypeError, 'handle must be a positive integer, got ');
  }
  await assertRefused(bridge.setLoraAdapter(1, NaN), TypeError, 'scale must be a finite number, got NaN');
  await assertRefused(bridge.setLoraAdapter(1, '1'), TypeError, 'scale must be a finite number, got "1"');
  await assertRefused(bridge.setLoraAdapter(1, 1e39), RangeError, 'outside the 32-bit float range');
  await assertRefused(bridge.setLoraAdapter(3), Error, 'LoRA adapter 3 is not loaded');
  await assertRefused(bridge.removeLoraAdapter(3), Error, 'LoRA adapter 3 is not loaded');
  assert.deepEqual(port().methods(), ['loadModelFromUrl']);
});

testInBothModes('case 153: handles count from 1, stand for the engine’s, and end with their model', async ({ loaded }) => {
  const { bridge, port } = await loaded();
  const load = async (engineHandle) =>
    (await answered(port, 'loadLoraAdapter', bridge.loadLoraAdapter(Uint8Array.of(1)), { handle: engineHandle })).value;
  assert.deepEqual([await load(70), await load(80)], [{ handle: 1 }, { handle: 2 }]);
  const { sent } = await answered(port, 'setLoraAdapter', bridge.setLoraAdapter(2, 0.5));
  assert.deepEqual(sent.args, [80, 0.5]);
  const model = bridge.loadModelFromUrl('n');
  await answered(port, 'loadModelFromUrl', model, 1);
  await assertRefused(bridge.setLoraAdapter(2), Error, 'LoRA adapter 2 is not loaded any more');
  assert.deepEqual(await load(70), { handle: 3 });
});

testInBothModes('case 161: sequences are checked before anything is posted', async ({ loaded }) => {
  const { bridge, port } = await loaded();
  await assertRefused(bridge.runDecision(0, []), TypeError, 'handle must be a positive integer');
  await assertRefused(bridge.runDecision(99, []), Error, 'Decision head 99 is not loaded');
  const head = bridge.loadDecisionHead(Uint8Array.of(1), { configJson: '{}' });
  const { value, sent } = await answered(port, 'loadDecisionHead', head, { handle: 7, hiddenSize: 3 });
  assert.deepEqual([value, sent.args[1]], [{ handle: 1, hiddenSize: 3 }, { configJson: '{}' }]);
  const good = { tokens: [1, 2], markers: Uint8Array.of(1), questionType: 0 };
  for (const [sequences, text] of [
    [{}, 'Decision sequences must be an array'],
    [[good, { ...good, tokens: [1, 1.5] }], 'Decision sequence 1 tokens[1] is 1.5; expected a 32-bit integer'],
    [[{ ...good, tokens: ['1'] }], 'Decision sequence 0 tokens[0] is "1"'],
    [[{ ...good, markers: 4 }], 'markers must be an array or typed array; got 4'],
    [[{ ...good, questionType: 2 ** 31 }], 'questionType is 2147483648'],
    [[null], 'tokens must be an array or typed array; got undefined'],
  ]) {
    await assertRefused(bridge.runDecision(1, sequences), TypeError, text);
  }
  assert.deepEqual(port().methods(), ['loadModelFromUrl', 'loadDecisionHead']);
  const run = await answered(port, 'runDecision', bridge.runDecision(1, [good]), []);
  assert.deepEqual(run.sent.args, [7, [{ tokens: Int32Array.of(1, 2), markers: Int32Array.of(1), questionType: 0 }]]);
});

testInBothModes('case 162: a head is freed once, and what is no head not at all', async ({ loaded }) => {
  const { bridge, port } = await loaded();
  await answered(port, 'loadDecisionHead', bridge.loadDecisionHead('h'), { handle: 7 });
  const { sent } = await answered(port, 'freeDecisionHead', bridge.freeDecisionHead(1));
  assert.deepEqual(sent.args, [7]);
  assert.equal(await bridge.freeDecisionHead(1), undefined);
  assert.equal(await bridge.freeDecisionHead(5), undefined);
  assert.equal(port().calls('freeDecisionHead').length, 1);
  await assertRefused(bridge.runDecision(1, []), Error, 'Decision head 1 is not loaded');
});

testInBothModes('case 183: a batch of nothing is nothing, without the engine', async ({ loaded }) => {
  const { bridge, port } = await loaded();
  assert.deepEqual(await bridge.embedBatch([]), []);
  assert.deepEqual(port().methods(), ['loadModelFromUrl']);
  const { sent } = await answered(port, 'embedBatch', bridge.embedBatch(new Set(['a', 'b']), { normalize: false }), [[1], [2]]);
  assert.deepEqual(sent.args, [['a', 'b'], { normalize: false }]);
});

testInBothModes('case 184: parts that are none are refused with a code, and nothing is posted', async ({ loaded }) => {
  const { bridge, port } = await loaded();
  const text = { type: 'text', text: 'a' };
  const bytes = Uint8Array.of(1);
  const [INVALID, UNSUPPORTED] = ['INVALID_EMBEDDING_INPUT', 'EMBEDDING_MODALITY_UNSUPPORTED'];
  for (const [parts, code] of [
    [[], INVALID],
    [[text, , text], INVALID], // eslint-disable-line no-sparse-arrays
    [[null], INVALID],
    [[{ type: 5 }], INVALID],
    [[{ type: 'text' }], INVALID],
    [[{ type: 'text', text: 5 }], INVALID],
    [[{ type: 'text', text: 'a <__media__> b' }], INVALID],
    [[{ type: 'image' }], INVALID],
    [[{ type: 'image', bytes, url: 'u' }], INVALID],
    [[{ type: 'image', bytes: new Uint8Array() }], INVALID],
    [[{ type: 'audio', url: ' ' }], INVALID],
    [[{ type: 'video', url: 'u' }], UNSUPPORTED],
    [[{ type: 'constructor', url: 'u' }], UNSUPPORTED],
    [[{ type: 'audio', samples: [0.1] }], UNSUPPORTED],
    [[{ type: 'audio', samples: Float32Array.of(NaN) }], UNSUPPORTED],
  ]) {
    for (const call of [bridge.embed(parts), bridge.embedBatch(['fine', parts])]) {
      const error = await refusal(call);
      assert.deepEqual([error.constructor, error.name, error.code], [EmbeddingError, 'EmbeddingError', code], error.message);
    }
  }
  assert.deepEqual(port().methods(), ['loadModelFromUrl']);
  const parts = [text, { type: 'image', bytes }];
  const call = bridge.embed(parts);
  parts.push(null); // the list is taken as it was at the call
  const { sent } = await answered(port, 'embed', call, [1]);
  assert.deepEqual(sent.args, [[text, { type: 'image', bytes }], {}]);
  assert.equal(bytes.length, 1);
});

testInBothModes('documents to rank are strings, in any list', async ({ loaded }) => {
  const { bridge, port } = await loaded();
  const found = [{ score: 2, labels: [2], promptTokens: 5 }];
  const { sent, value } = await answered(port, 'rank', bridge.rank('q', new Set(['a'])), found);
  assert.deepEqual([sent.args, value], [['q', ['a']], found]);
  await assertRefused(bridge.rank(5, ['a']), TypeError, 'query must be a string, got 5');
  await assertRefused(bridge.rank('q', 'text'), TypeError, 'documents must be a list of strings');
  await assertRefused(bridge.rank('q', ['a', null]), TypeError, 'documents[1] must be a string, got null');
  assert.equal(port().calls('rank').length, 1);
});

test('case 90: a head or adapter call whose worker is gone moves to the main thread; an ordinary error keeps the worker', async () => {
  const { bridge, worker, direct } = await loadedBridge();
  const ordinary = outcome(bridge.loadLoraAdapter('a.gguf'));
  await settled();
  worker.error(2, 'Failed to load LoRA adapter: no such tensor', LOADED);
  assert.match((await ordinary)[1].message, /^Failed to load LoRA adapter/);
  const probe = outcome(bridge.getDecisionCapabilities());
  await settled();
  worker.error(3, 'Bridge worker request failed: worker terminated', LOADED);
  for (let i = 0; i < 3; i++) await settled();
  direct[0].result(direct[0].calls('loadModelFromUrl')[0].id, 1, LOADED);
  await settled();
  direct[0].result(direct[0].calls('getDecisionCapabilities')[0].id, { supported: false });
  assert.deepEqual(await probe, [{ supported: false }]);
});
