import assert from 'node:assert/strict';
import { test } from 'node:test';

import { FakeWorker, installFakeWorker, loadedBridge, outcome, settled } from './fake_worker.mjs';

installFakeWorker();

test('case 180: candidates of any integer array, order kept, null logprob is -Infinity, bytes are Uint8Array', async () => {
  const { bridge, worker } = await loadedBridge();
  const scoring = bridge.scoreNextToken('p', { candidates: Int32Array.of(9, 4), topK: 1, reusePromptPrefix: false });
  await settled();
  const [call] = worker.calls('scoreNextToken');
  assert.deepEqual(call.args, ['p', { candidates: [9, 4], topK: 1, reusePromptPrefix: false }]);
  const scores = [
    { token: 9, bytes: [104, 105], logprob: null },
    { token: 4, bytes: new Uint8Array([0xf0, 0x9f]), logprob: -0.5 },
  ];
  worker.result(call.id, { candidates: scores, top: [scores[1]], promptTokens: 3 });
  assert.deepEqual(await scoring, {
    candidates: [
      { token: 9, bytes: new Uint8Array([104, 105]), logprob: -Infinity },
      { token: 4, bytes: new Uint8Array([0xf0, 0x9f]), logprob: -0.5 },
    ],
    top: [{ token: 4, bytes: new Uint8Array([0xf0, 0x9f]), logprob: -0.5 }],
    promptTokens: 3,
  });
});

test('case 181: what is not a string or a 32-bit integer is refused at the call and nothing is posted', async () => {
  const { bridge, worker } = await loadedBridge();
  const before = worker.messages.length;
  for (const [prompt, options, text] of [
    ['p', { candidates: [1.5] }, 'candidates[0] is 1.5; expected a 32-bit integer'],
    ['p', { candidates: [2, '1'] }, 'candidates[1] is "1"; expected a 32-bit integer'],
    ['p', { candidates: [, 1] }, 'candidates[0] is undefined; expected a 32-bit integer'], // eslint-disable-line no-sparse-arrays
    ['p', { candidates: 1 }, 'candidates must be an array or typed array; got 1'],
    ['p', { candidates: new DataView(new ArrayBuffer(4)) }, 'candidates must be an array or typed array'],
    ['p', { topK: 2 ** 31 }, 'topK is 2147483648; expected a 32-bit integer'],
    ['p', { topK: '3' }, 'topK is "3"; expected a 32-bit integer'],
    [null, { topK: 1 }, 'prompt must be a string; got null'],
  ]) {
    const [, error] = await outcome(bridge.scoreNextToken(prompt, options));
    assert.ok(error instanceof TypeError, String(error));
    assert.ok(error.message.startsWith(text), error.message);
  }
  assert.equal(worker.messages.length, before);
});

test('case 182: a token outside the vocabulary is an answer; the worker stays', async () => {
  const { bridge, worker, direct } = await loadedBridge();
  const scoring = outcome(bridge.scoreNextToken('p', { candidates: [99] }));
  await settled();
  const text = 'Next-token scoring failed: candidates[0] is 99, which is outside the vocabulary of 8 tokens';
  worker.error(worker.calls('scoreNextToken')[0].id, text);
  assert.equal((await scoring)[1].message, text);
  assert.deepEqual([direct.length, FakeWorker.all.at(-1).terminated], [0, 0]);
});
