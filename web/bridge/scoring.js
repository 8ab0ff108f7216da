import { describe } from './describe.js';

const isInt32 = (value) => typeof value === 'number' && (value | 0) === value;

/**
 * The options of scoreNextToken, checked at the call and copied.
 * @param {unknown} prompt @param {Record<string, any>} options
 * @throws {TypeError}
 */
export function scoreRequestOptions(prompt, options) {
  if (typeof prompt !== 'string') throw new TypeError(`prompt must be a string; got ${describe(prompt)}`);
  const { candidates, topK = 0, ...sent } = options;
  if (candidates != null) sent.candidates = integerList(candidates);
  if (!isInt32(topK)) throw new TypeError(`topK is ${describe(topK)}; expected a 32-bit integer`);
  return { ...sent, topK };
}

/** What the page gets: bytes as Uint8Array, and -Infinity where JSON has no number. */
export function scoresFromAnswer(answer) {
  if (answer === null || typeof answer !== 'object') return answer;
  const scores = (list) => Array.from(list ?? [], scoreFromAnswer);
  return { candidates: scores(answer.candidates), top: scores(answer.top), promptTokens: answer.promptTokens };
}

/** What onToken gets of the tokens of an event. @param {object[]} details */
export function tokenDetails(details) {
  return details.map((detail) => ({ ...scoreFromAnswer(detail), top: Array.from(detail.top ?? [], scoreFromAnswer) }));
}

function scoreFromAnswer({ token, bytes, logprob }) {
  return { token, bytes: Uint8Array.from(bytes ?? []), logprob: logprob ?? -Infinity };
}

function integerList(candidates) {
  const isList = Array.isArray(candidates) || (ArrayBuffer.isView(candidates) && !(candidates instanceof DataView));
  if (!isList) throw new TypeError(`candidates must be an array or typed array; got ${describe(candidates)}`);
  return Array.from(candidates, (token, i) => {
    if (!isInt32(token)) throw new TypeError(`candidates[${i}] is ${describe(token)}; expected a 32-bit integer`);
    return token;
  });
}
