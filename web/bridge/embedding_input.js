import { describe } from './describe.js';
import { EmbeddingError } from './failures.js';

/** Stands for an image or a sound in an expanded prompt, so a text that holds it would change their order. */
const MEDIA_MARKER = '<__media__>';
/** What each kind of part may come from; exactly one of them. */
const SOURCES = { text: ['text'], image: ['bytes', 'url'], audio: ['samples', 'bytes', 'url'] };

/**
 * The input of an embedding as it is at the call: a string, or a checked copy of the list and its descriptors. Buffers stay
 * the caller's.
 *
 * @param {unknown} input
 * @throws {EmbeddingError}
 */
export function embeddingInput(input) {
  if (!Array.isArray(input)) return input;
  if (!input.length) throw invalid('Embedding parts are empty');
  return Array.from(input, (part, i) => {
    if (!(i in input)) throw invalid(`Embedding part ${i} is missing`);
    checkPart(part, `Embedding part ${i}`);
    return { ...part };
  });
}

function checkPart(part, name) {
  if (part === null || typeof part !== 'object') throw invalid(`${name} must be an object; got ${describe(part)}`);
  if (typeof part.type !== 'string') throw invalid(`${name} has the type ${describe(part.type)}; it must be a string`);
  const sources = Object.hasOwn(SOURCES, part.type) ? SOURCES[part.type] : null;
  if (!sources) throw unsupported(`${name} has the type ${describe(part.type)}; it must be text, image or audio`);
  const given = sources.filter((source) => part[source] != null);
  if (given.length !== 1) throw invalid(`${name} must have exactly one of ${sources.join(', ')}; it has ${given.length}`);
  const [source] = given;
  CHECKS[source](part[source], name);
}

const CHECKS = {
  text(text, name) {
    if (typeof text !== 'string') throw invalid(`${name} has a text that is ${describe(text)}; it must be a string`);
    if (text.includes(MEDIA_MARKER)) throw invalid(`${name} holds the reserved marker ${MEDIA_MARKER}`);
  },
  url(url, name) {
    if (typeof url !== 'string' || !url.trim()) throw invalid(`${name} has a url that is ${describe(url)}; it must be a string`);
  },
  bytes(bytes, name) {
    if (!(bytes instanceof Uint8Array) || !bytes.length) throw invalid(`${name} has bytes that are no Uint8Array, or an empty one`);
  },
  samples(samples, name) {
    const isPcm = samples instanceof Float32Array && samples.length > 0 && samples.every(Number.isFinite);
    if (!isPcm) throw unsupported(`${name} must have finite mono samples at 16 kHz in a Float32Array`);
  },
};

const invalid = (text) => new EmbeddingError(`${text}.`, 'INVALID_EMBEDDING_INPUT');
const unsupported = (text) => new EmbeddingError(`${text}.`, 'EMBEDDING_MODALITY_UNSUPPORTED');
