import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

import { draftTokenLimit } from '../../web/bridge/speculative_options.js';
import { bridgeWithFakes, FakeWorker, installFakeWorker, outcome, settled, testInBothModes } from './fake_worker.mjs';

installFakeWorker();
beforeEach(() => FakeWorker.reset());

const tags = { startTag: '<think>', endTag: '</think>' };
const budget = (changes) => ({ thinkingBudget: { maxTokens: 8, ...tags, ...changes } });
const speculative = (options) => ({ speculativeDecoding: { strategies: ['ngram-mod'], ...options } });

const REFUSED = [
  [{ minP: -0.01 }, RangeError, 'CompletionOptions.minP must be a finite number from 0 to 1; got -0.01'],
  [{ minP: 1.01 }, RangeError, 'got 1.01'],
  [{ minP: NaN }, RangeError, 'got NaN'],
  [{ minP: Infinity }, RangeError, 'got Infinity'],
  [{ minP: '0.1' }, RangeError, 'got "0.1"'],
  [{ presencePenalty: NaN }, RangeError, 'CompletionOptions.presencePenalty must be a finite number; got NaN'],
  [{ presencePenalty: -Infinity }, RangeError, 'got -Infinity'],
  [{ presencePenalty: '1' }, RangeError, 'got "1"'],
  [{ presencePenalty: 1e39 }, RangeError, 'got 1e+39'],
  [{ thinkingBudget: 8 }, TypeError, 'thinkingBudget must be an object'],
  [budget({ maxTokens: -1 }), RangeError, 'thinkingBudget.maxTokens must be an integer from 0 to 2147483647; got -1'],
  [budget({ maxTokens: 1.5 }), RangeError, 'got 1.5'],
  [budget({ maxTokens: 2147483648 }), RangeError, 'got 2147483648'],
  [budget({ maxTokens: '8' }), RangeError, 'got "8"'],
  [budget({ maxTokens: undefined }), RangeError, 'got undefined'],
  [budget({ startTag: ' ' }), TypeError, 'thinkingBudget.startTag must be a non-empty string'],
  [budget({ endTag: '' }), TypeError, 'thinkingBudget.endTag must be a non-empty string'],
  [budget({ forcedMessage: 3 }), TypeError, 'thinkingBudget.forcedMessage must be a string'],
  [{ ...budget({}), parts: [{ type: 'image' }] }, Error, 'thinkingBudget supports text-only prompts'],
  [{ stop: 5 }, TypeError, 'stop must be a string or an array of strings'],
  [{ stop: ['a', ''] }, TypeError, 'none of them empty'],
  [{ stop: '' }, TypeError, 'none of them empty'],
  [{ logitBias: 3 }, TypeError, 'logitBias must be an object; got 3'],
  [{ logitBias: [[1, 2]] }, TypeError, 'logitBias must be an object; got an array'],
  [{ logitBias: { x: 1 } }, RangeError, 'has the key "x"; keys must be token ids'],
  [{ logitBias: { 3: NaN } }, RangeError, 'logitBias[3] must be a number or -Infinity; got NaN'],
  [{ logitBias: { 3: Infinity } }, RangeError, 'got Infinity'],
  [{ speculativeDecoding: 1 }, TypeError, 'speculativeDecoding must be an object'],
  [speculative({ strategies: [] }), TypeError, 'strategies must be a non-empty array'],
  [speculative({ strategies: 'ngram-mod' }), TypeError, 'strategies must be a non-empty array'],
  [speculative({ strategies: ['x'] }), TypeError, 'unknown strategy "x"'],
  [speculative({ draftTokenMax: -1 }), RangeError, 'draftTokenMax must be an integer from 0'],
  [speculative({ draftTokenMin: 0.5 }), RangeError, 'draftTokenMin must be an integer from 0'],
  [speculative({ minProbability: 2 }), RangeError, 'must be a number from 0 to 1'],
  [speculative({ ngramSizeN: 0 }), RangeError, 'must be an integer from 1 to 65535'],
  [speculative({ ngramMatch: 65536 }), RangeError, 'must be an integer from 1 to 65535'],
  [speculative({ ngramTokenMin: -1 }), RangeError, 'ngramTokenMin must be an integer from 0'],
  [speculative({ ngramCacheStatic: 5 }), TypeError, 'must be a URL string, an ArrayBuffer or a typed array'],
  [speculative({ ngramCacheStatic: new Uint8Array() }), TypeError, 'ngramCacheStatic is empty'],
  [speculative({ strategies: ['draft-mtp', 'draft-simple'] }), Error, 'at most one draft-* strategy'],
  [speculative({ draftTokenMin: 1 }), Error, 'do not support draftTokenMin, minProbability or draftSplitProbability'],
  [speculative({ ngramCacheStatic: 'a.lcs' }), Error, 'need the ngram-cache strategy'],
  [speculative({ ngramTokenMin: 9, ngramTokenMax: 8 }), RangeError, 'ngramTokenMin (9) must not exceed ngramTokenMax (8)'],
  [speculative({ ngramTokenMin: 9, draftTokenMax: 8 }), RangeError, 'ngramTokenMin (9) must not exceed ngramTokenMax (8)'],
  [
    speculative({ strategies: ['draft-simple'], draftTokenMin: 4 }),
    RangeError,
    'draftTokenMin (4) must not exceed the draft token maximum (3)',
  ],
  [{ ...speculative({}), parts: [{}] }, Error, 'supports text-only prompts'],
  [{ ...speculative({}), ...budget({}) }, Error, 'cannot be combined with CompletionOptions.thinkingBudget'],
  [{ ...speculative({}), grammar: 'root ::= "a"' }, Error, 'does not support CompletionOptions.grammar'],
];

testInBothModes('bad completion options are refused before the queue and before the disposed check', async ({ open }) => {
  const { bridge, port } = open();
  await settled();
  for (const [options, type, fragment] of REFUSED) {
    const [, error] = await outcome(bridge.createCompletion('x', options));
    assert.equal(error?.constructor, type, fragment);
    assert.ok(error.message.includes(fragment), `${error.message} lacks ${fragment}`);
  }
  assert.deepEqual(port()?.methods() ?? [], []);
  await bridge.dispose();
  const [, error] = await outcome(bridge.createCompletion('x', { minP: 2 }));
  assert.equal(error.constructor, RangeError);
});

testInBothModes('the bounds themselves and absent values are accepted', async ({ open }) => {
  FakeWorker.answers.createCompletion = ({ id }, worker) => worker.result(id, 'ok');
  const { bridge } = open();
  const accepted = [
    { minP: null, presencePenalty: null },
    { minP: 1, presencePenalty: 1e6 },
    { minP: 0, presencePenalty: 0 },
    budget({ maxTokens: 0 }),
    budget({ maxTokens: 2147483647 }),
    { ...speculative({}), grammar: '' },
    { speculativeDecoding: null },
    { stop: null, logitBias: null },
    { stop: ['a', 'b'], logitBias: { 3: -Infinity, 4: 1.5 } },
  ];
  for (const options of accepted) assert.equal(await bridge.createCompletion('x', options), 'ok');
});

test('speculative options: duplicates dropped, cache URLs made absolute', async () => {
  const { bridge } = bridgeWithFakes();
  const strategies = ['ngram-cache', 'ngram-mod', 'ngram-cache'];
  const caches = { ngramCacheStatic: 'caches/a.lcs', ngramCacheDynamic: '/b.lcs' };
  outcome(bridge.createCompletion('x', speculative({ strategies, ...caches })));
  await settled();
  assert.deepEqual(FakeWorker.last.calls()[0].args[1].speculativeDecoding, {
    strategies: ['ngram-cache', 'ngram-mod'],
    ngramCacheStatic: 'https://e.test/app/caches/a.lcs',
    ngramCacheDynamic: 'https://e.test/b.lcs',
  });
});

test('the draft limit follows the strategies', () => {
  const limits = [
    [{}, ['draft-simple'], 3],
    [{ draftTokenMax: 5 }, ['draft-mtp'], 5],
    [{}, ['ngram-simple'], 48],
    [{ ngramSizeM: 8 }, ['ngram-map-k'], 8],
    [{}, ['ngram-cache'], 8],
    [{}, ['ngram-mod'], 64],
    [{ draftTokenMax: 10 }, ['ngram-mod'], 10],
    [{ ngramTokenMax: 0 }, ['ngram-mod'], 64],
    [{ draftTokenMax: 0 }, ['draft-simple'], 64],
    [{}, ['draft-simple', 'ngram-cache'], 8],
  ];
  for (const [options, strategies, limit] of limits) assert.equal(draftTokenLimit(options, strategies), limit);
});
