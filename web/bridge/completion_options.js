import { describe } from './describe.js';
import { normalizeSpeculativeDecoding } from './speculative_options.js';

const MAX_INT32 = 2 ** 31 - 1;

/**
 * The part of a completion's options that crosses to the engine, checked at the call.
 *
 * @param {Record<string, any>} options
 * @param {(url: string) => string} resolveUrl
 * @throws {TypeError | RangeError | Error} for the options that are refused before anything is queued
 */
export function completionRequestOptions(options, resolveUrl) {
  const { onToken, onUsage, signal, ...sent } = options;
  checkThinkingBudget(options);
  checkNumber('minP', options.minP, (value) => value >= 0 && value <= 1, 'a finite number from 0 to 1');
  checkNumber('presencePenalty', options.presencePenalty, () => true, 'a finite number');
  checkStop(options.stop);
  checkLogitBias(options.logitBias);
  if (options.speculativeDecoding != null) {
    sent.speculativeDecoding = normalizeSpeculativeDecoding(options, resolveUrl);
  }
  return sent;
}

function checkThinkingBudget({ thinkingBudget: budget, parts }) {
  if (budget == null) return;
  if (typeof budget !== 'object') {
    throw new TypeError(`CompletionOptions.thinkingBudget must be an object; got ${describe(budget)}`);
  }
  const { maxTokens, forcedMessage } = budget;
  if (!Number.isInteger(maxTokens) || maxTokens < 0 || maxTokens > MAX_INT32) {
    const allowed = `an integer from 0 to ${MAX_INT32}`;
    throw new RangeError(`CompletionOptions.thinkingBudget.maxTokens must be ${allowed}; got ${describe(maxTokens)}`);
  }
  for (const tag of ['startTag', 'endTag']) {
    if (typeof budget[tag] !== 'string' || !budget[tag].trim()) {
      throw new TypeError(`CompletionOptions.thinkingBudget.${tag} must be a non-empty string`);
    }
  }
  if (forcedMessage != null && typeof forcedMessage !== 'string') {
    throw new TypeError('CompletionOptions.thinkingBudget.forcedMessage must be a string');
  }
  if (parts?.length) throw new Error('CompletionOptions.thinkingBudget supports text-only prompts');
}

function checkStop(stop) {
  if (stop == null) return;
  const stops = typeof stop === 'string' ? [stop] : stop;
  if (Array.isArray(stops) && stops.every((text) => typeof text === 'string' && text)) return;
  throw new TypeError('CompletionOptions.stop must be a string or an array of strings, none of them empty');
}

function checkLogitBias(bias) {
  if (bias == null) return;
  const isPlain = typeof bias === 'object' && !Array.isArray(bias) && !(bias instanceof Map);
  if (!isPlain) throw new TypeError(`CompletionOptions.logitBias must be an object; got ${describe(bias)}`);
  for (const [token, amount] of Object.entries(bias)) {
    if (!/^\d+$/.test(token)) {
      throw new RangeError(`CompletionOptions.logitBias has the key ${describe(token)}; keys must be token ids`);
    }
    if (typeof amount === 'number' && (amount === -Infinity || Number.isFinite(Math.fround(amount)))) continue;
    throw new RangeError(`CompletionOptions.logitBias[${token}] must be a number or -Infinity; got ${describe(amount)}`);
  }
}

function checkNumber(name, value, isAllowed, allowed) {
  if (value == null) return;
  if (typeof value === 'number' && Number.isFinite(Math.fround(value)) && isAllowed(value)) return;
  throw new RangeError(`CompletionOptions.${name} must be ${allowed}; got ${describe(value)}`);
}
