/**
 * What is wrong with a GGUF file, or with a call on one.
 *
 * code: INVALID_GGUF, TRUNCATED_GGUF, GGUF_LIMIT_EXCEEDED, UNSUPPORTED_GGUF; INVALID_INPUT for an argument, INVALID_MODEL
 * for a tensor or key that the file does not have or has wrong, UNSUPPORTED for a tokenizer or type this build does not
 * know, SOURCE_FAILED for a source that gives wrong answers, CLOSED, and READER_FAILED where the reader itself could not
 * work. `needsMoreBytes` is true only for TRUNCATED_GGUF: a longer file could then be read, this one is cut off.
 * Failures of a source are ByteSourceErrors, as they come from web/byte_source.js.
 */
export class GGUFError extends Error {
  constructor(code, message, needsMoreBytes = false) {
    super(message);
    this.name = 'GGUFError';
    this.code = code;
    this.needsMoreBytes = needsMoreBytes;
  }
}
