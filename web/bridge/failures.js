/**
 * What went wrong, read from an error's text: may the main thread take over, is the worker lost, was it a timeout?
 *
 * The fragments below are the vocabulary of the wire protocol; everything else is an ordinary answer of a healthy engine
 * and goes back to the caller unchanged.
 */

/** Out of memory on one thread is out of memory on the other: these never move to the main thread. */
const MEMORY_EXHAUSTED = [
  'aborted(native code called abort())',
  'array buffer allocation failed',
  'bad_alloc',
  'out of memory',
  'memory access out of bounds',
];
const WORKER_LOST = [
  'bridge worker',
  'worker request failed',
  'worker request timeout',
  'worker init timeout',
  'timed out',
  'worker proxy is not available',
  'worker is not initialized',
  'failed to initialize bridge worker',
  'script error',
];
const ENGINE_ABORTED = [
  'aborted(',
  'runtimeerror',
  'unreachable',
  'memory access out of bounds',
  'function signature mismatch',
  'program terminated with exit',
];
const STALLED = ['worker completion stalled', 'worker createcompletion stalled', 'worker timed out', 'worker timeout'];
const REQUEST_TIMEOUT = ['worker request timeout', 'worker init timeout', 'worker timed out'];
const FILE_SYSTEM = ['fs error', 'no such file', 'not found', 'invalid argument', 'timed out'];

/** An error of the worker itself (it crashed, or it kept silent), not an answer of the engine in it. */
export class WorkerFailure extends Error {
  /** @param {string} message @param {{crashed?: boolean, timedOut?: boolean}} [cause] */
  constructor(message, { crashed = false, timedOut = false } = {}) {
    super(message);
    this.crashed = crashed;
    this.timedOut = timedOut;
  }
}

/** A failure of an embedding call; `code` tells which. */
export class EmbeddingError extends Error {
  /** @param {string} message @param {string} code */
  constructor(message, code) {
    super(message);
    this.name = 'EmbeddingError';
    this.code = code;
  }
}

/**
 * The text that stands for a thrown value, as the protocol serialises it.
 * @param {unknown} error
 */
export function errorText(error) {
  if (!error) return 'Unknown worker error';
  if (typeof error === 'string') return error;
  if (typeof error.message === 'string' && error.message) return error.message;
  try {
    return JSON.stringify(error) ?? String(error);
  } catch {
    return String(error);
  }
}

/**
 * An Error made from an `error` message; it carries the engine's snapshot, and a name and code where they were sent.
 * @param {{message?: string, name?: string, code?: string, state?: object}} message
 */
export function errorFromMessage({ message, name, code, state }) {
  const text = message || 'Worker request failed';
  const error = name === 'EmbeddingError' ? new EmbeddingError(text, code) : new Error(text);
  if (code) error.code = code;
  if (state) error.state = state;
  return error;
}

/** @param {string} text */
export function abortError(text) {
  return new DOMException(text, 'AbortError');
}

/** A failure with a code is an answer: the engine is well, and the same call would fail the same way elsewhere. */
export function isAnswer(error) {
  return error?.code !== undefined;
}

/** @param {unknown} error */
export function mayRunOnMainThread(error) {
  if (error?.crashed) return true;
  if (isAnswer(error)) return false;
  const text = errorText(error).toLowerCase();
  return !includesAny(text, MEMORY_EXHAUSTED) && includesAny(text, WORKER_LOST);
}

/** The worker cannot serve another call: it crashed, stalled, was lost, or its engine aborted. @param {unknown} error */
export function isWorkerUnusable(error) {
  if (error?.crashed || error?.timedOut || error instanceof WebAssembly.RuntimeError) return true;
  if (isAnswer(error)) return false;
  const text = errorText(error).toLowerCase();
  return includesAny(text, STALLED) || includesAny(text, ENGINE_ABORTED) || mayRunOnMainThread(error);
}

/** A load failed on the worker's file handling, so a fresh worker may succeed. @param {unknown} error */
export function isRecoverableByRestart(error) {
  if (error?.crashed || isAnswer(error)) return false;
  const text = errorText(error).toLowerCase();
  if (includesAny(text, REQUEST_TIMEOUT) || text.includes('model shard:')) return false;
  return includesAny(text, FILE_SYSTEM);
}

function includesAny(text, fragments) {
  return fragments.some((fragment) => text.includes(fragment));
}
