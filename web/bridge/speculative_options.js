import { describe } from './describe.js';

const MAX_INT32 = 2 ** 31 - 1;
const COUNT = { least: 0, most: MAX_INT32, allowed: 'an integer from 0 to 2147483647' };
const LENGTH = { least: 1, most: 65535, allowed: 'an integer from 1 to 65535' };

const NGRAM_LOOKUPS = ['ngram-simple', 'ngram-map-k', 'ngram-map-k4v'];

export const STRATEGIES = [
  'draft-simple',
  'draft-eagle3',
  'draft-mtp',
  'draft-dflash',
  'draft-dspark',
  ...NGRAM_LOOKUPS,
  'ngram-mod',
  'ngram-cache',
];

/**
 * `speculativeDecoding` with duplicate strategies removed and cache URLs made absolute; the first broken rule throws.
 *
 * @param {Record<string, any>} completion  the completion's options
 * @param {(url: string) => string} resolveUrl
 */
export function normalizeSpeculativeDecoding(completion, resolveUrl) {
  const options = completion.speculativeDecoding;
  if (typeof options !== 'object') throw new TypeError('CompletionOptions.speculativeDecoding must be an object');
  const strategies = checkedStrategies(options.strategies);
  checkIntegers(options, ['draftTokenMax', 'draftTokenMin'], COUNT);
  checkProbabilities(options, ['minProbability', 'draftSplitProbability']);
  checkIntegers(options, ['ngramSizeN', 'ngramSizeM', 'ngramMinHits', 'ngramMatch'], LENGTH);
  checkIntegers(options, ['ngramTokenMin', 'ngramTokenMax'], COUNT);
  checkCaches(options);
  checkCombination(options, strategies);
  checkCompanions(completion);
  const normalized = { ...options, strategies };
  for (const key of ['ngramCacheStatic', 'ngramCacheDynamic']) {
    if (typeof options[key] === 'string') normalized[key] = resolveUrl(options[key]);
  }
  return normalized;
}

/**
 * Most tokens one step may draft: the largest of what the strategies want; 0 stands for 64.
 * @param {Record<string, number>} options @param {string[]} strategies
 */
export function draftTokenLimit({ draftTokenMax, ngramSizeM, ngramTokenMax }, strategies) {
  const wanted = strategies.map((strategy) => {
    if (strategy.startsWith('draft-')) return draftTokenMax ?? 3;
    if (NGRAM_LOOKUPS.includes(strategy)) return ngramSizeM ?? 48;
    return strategy === 'ngram-mod' ? (ngramTokenMax ?? draftTokenMax ?? 64) : (draftTokenMax ?? 8);
  });
  return Math.max(...wanted) || 64;
}

function checkedStrategies(strategies) {
  if (!Array.isArray(strategies) || !strategies.length) {
    throw new TypeError('speculativeDecoding.strategies must be a non-empty array');
  }
  for (const strategy of strategies) {
    if (!STRATEGIES.includes(strategy)) {
      const name = typeof strategy === 'string' ? `"${strategy}"` : describe(strategy);
      const known = STRATEGIES.join(', ');
      throw new TypeError(`speculativeDecoding.strategies holds the unknown strategy ${name}; known are ${known}`);
    }
  }
  return [...new Set(strategies)];
}

function checkIntegers(options, keys, { least, most, allowed }) {
  for (const key of keys) {
    const value = options[key];
    if (value == null || (Number.isInteger(value) && value >= least && value <= most)) continue;
    throw new RangeError(`speculativeDecoding.${key} must be ${allowed}; got ${describe(value)}`);
  }
}

function checkProbabilities(options, keys) {
  for (const key of keys) {
    const value = options[key];
    if (value == null || (typeof value === 'number' && value >= 0 && value <= 1)) continue;
    throw new RangeError(`speculativeDecoding.${key} must be a number from 0 to 1; got ${describe(value)}`);
  }
}

function checkCaches(options) {
  for (const key of ['ngramCacheStatic', 'ngramCacheDynamic']) {
    const source = options[key];
    if (source == null) continue;
    const isBytes = source instanceof ArrayBuffer || ArrayBuffer.isView(source);
    if (typeof source !== 'string' && !isBytes) {
      throw new TypeError(`speculativeDecoding.${key} must be a URL string, an ArrayBuffer or a typed array`);
    }
    if (isBytes ? source.byteLength === 0 : !source.trim()) {
      throw new TypeError(`speculativeDecoding.${key} is empty`);
    }
  }
}

function checkCombination(options, strategies) {
  const drafts = strategies.filter((strategy) => strategy.startsWith('draft-'));
  const isSet = (...keys) => keys.some((key) => options[key] != null);
  if (drafts.length > 1) {
    throw new Error(`speculativeDecoding takes at most one draft-* strategy; got ${drafts.join(', ')}`);
  }
  if (!drafts.length && isSet('draftTokenMin', 'minProbability', 'draftSplitProbability')) {
    const rule = 'do not support draftTokenMin, minProbability or draftSplitProbability';
    throw new Error(`speculativeDecoding strategies ${strategies.join(', ')} ${rule}; they need a draft-* strategy`);
  }
  if (!strategies.includes('ngram-cache') && isSet('ngramCacheStatic', 'ngramCacheDynamic')) {
    throw new Error('speculativeDecoding.ngramCacheStatic and ngramCacheDynamic need the ngram-cache strategy');
  }
  const { ngramTokenMin, draftTokenMin, draftTokenMax } = options;
  const ngramTokenMax = options.ngramTokenMax ?? (strategies.includes('ngram-mod') ? draftTokenMax : undefined);
  if (ngramTokenMin != null && ngramTokenMax != null && ngramTokenMin > ngramTokenMax) {
    const rule = `must not exceed ngramTokenMax (${ngramTokenMax})`;
    throw new RangeError(`speculativeDecoding.ngramTokenMin (${ngramTokenMin}) ${rule}`);
  }
  const limit = draftTokenLimit(options, strategies);
  if (draftTokenMin != null && draftTokenMin > limit) {
    const rule = `must not exceed the draft token maximum (${limit})`;
    throw new RangeError(`speculativeDecoding.draftTokenMin (${draftTokenMin}) ${rule}`);
  }
}

function checkCompanions({ parts, thinkingBudget, grammar }) {
  if (parts?.length) throw new Error('CompletionOptions.speculativeDecoding supports text-only prompts');
  if (thinkingBudget != null) {
    throw new Error('CompletionOptions.speculativeDecoding cannot be combined with CompletionOptions.thinkingBudget');
  }
  if (grammar) throw new Error('CompletionOptions.speculativeDecoding does not support CompletionOptions.grammar');
}
