import { describe } from './describe.js';

const isInt32 = (value) => typeof value === 'number' && (value | 0) === value;
const isList = (value) => Array.isArray(value) || (ArrayBuffer.isView(value) && !(value instanceof DataView));

/**
 * Sequences of runDecision as they cross: `{tokens: Int32Array, markers: Int32Array, questionType}`.
 * @param {unknown} sequences
 * @throws {TypeError} for what is not an integer where one is needed
 */
export function decisionSequences(sequences) {
  if (!Array.isArray(sequences)) throw new TypeError(`Decision sequences must be an array; got ${describe(sequences)}`);
  return Array.from(sequences, (sequence, i) => {
    const name = `Decision sequence ${i}`;
    const { questionType, ...lists } = Object(sequence);
    const [tokens, markers] = ['tokens', 'markers'].map((key) => integers(`${name} ${key}`, lists[key]));
    if (!isInt32(questionType)) {
      throw new TypeError(`${name} questionType is ${describe(questionType)}; expected a 32-bit integer`);
    }
    return { tokens, markers, questionType };
  });
}

function integers(name, list) {
  if (!isList(list)) throw new TypeError(`${name} must be an array or typed array; got ${describe(list)}`);
  return Int32Array.from(list, (value, i) => {
    if (!isInt32(value)) throw new TypeError(`${name}[${i}] is ${describe(value)}; expected a 32-bit integer`);
    return value;
  });
}
