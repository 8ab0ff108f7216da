/** Turns what the bridge throws into a sentence for a person, followed by what to do about it. */

// The first row that matches wins. `code` is the engine's stable error code, where the error carries one.
const EXPLANATIONS = [
  {
    text: /\b4(04|10)\b/,
    says: (message) => `There is no file at this address (status ${message.match(/\b4(04|10)\b/)[0]}).`,
    todo: "Check the address, or choose another model.",
  },
  {
    text: /\b40[13]\b/,
    says: (message) => `The server does not give this file to everyone (status ${message.match(/\b40[13]\b/)[0]}).`,
    todo: "Download it where you are signed in, and choose it from this computer.",
  },
  {
    text: /\bstatus (429|5\d\d)\b|: (429|5\d\d)\b/,
    says: (message) => `The server is not able to send the file just now (status ${message.match(/\b(429|5\d\d)\b/)[0]}).`,
    todo: "Wait a moment and load it again.",
  },
  {
    text: /not a GGUF file|magic/i,
    says: () => "This is not a GGUF model file.",
    todo: "Choose a file that ends in .gguf; an address must lead to the file itself, not to a page about it.",
  },
  {
    code: "TRUNCATED_GGUF",
    text: /ended early|ends early|truncated/i,
    says: () => "The model file is cut off.",
    todo: "Download it again, or load it again if it came from an address.",
  },
  {
    text: /failed to fetch|networkerror|network error|load failed|cors/i,
    says: () => "The file could not be read: the server did not answer, or it does not let other sites read its files (CORS).",
    todo: "Check the connection, or download the file and choose it from this computer.",
  },
  {
    text: /webgpu|no adapter|navigator\.gpu/i,
    says: (message) => (globalThis.isSecureContext ? sentence(message) : "Browsers switch WebGPU off on pages opened over plain http."),
    todo: () =>
      globalThis.isSecureContext
        ? "Use a current Chrome, Edge or Safari with graphics acceleration on, or set GPU layers to 0."
        : "Open this page over https, or from localhost.",
  },
  {
    code: "CONTEXT_OVERFLOW",
    text: /exceeds the context|context size/i,
    says: sentence,
    todo: "Write less, clear the chat, or unload the model and load it with a larger context.",
  },
  {
    text: /out of memory|allocation failed|bad_alloc|memory access out of bounds/i,
    says: () => "There is not enough memory for this model.",
    todo: "Close other tabs, choose a smaller context, or choose a smaller model.",
  },
  {
    code: "DEVICE_FAILED",
    text: /device (was |is )?lost|device error/i,
    says: sentence,
    todo: "Unload the model and load it again.",
  },
  {
    code: "UNSUPPORTED",
    text: /not supported|unsupported/i,
    says: sentence,
    todo: "Choose another model or another file of it.",
  },
  {
    text: /timed? ?out|worker|script error/i,
    says: sentence,
    todo: "Load the model again; if that fails, choose the page’s thread under the options for loading.",
  },
];

const NOT_SENTENCES = /^(undefined|null|\[object.*\])?$/;

/**
 * @param {unknown} error
 * @param {string} otherwise  what to do when nothing better is known
 */
export function explain(error, otherwise) {
  const message = String(error?.message ?? error).trim();
  const row = EXPLANATIONS.find(({ code, text }) => (code && code === error?.code) || text.test(message));
  if (!row) return `${sentence(message)} ${otherwise}`;
  return `${row.says(message)} ${typeof row.todo === "function" ? row.todo() : row.todo}`;
}

/** Whether this is what an abort by the person looks like, not a failure. */
export function isAbort(error) {
  return error?.name === "AbortError";
}

function sentence(message) {
  if (NOT_SENTENCES.test(message)) return "Something went wrong, and the engine did not say what.";
  const capital = message[0].toUpperCase() + message.slice(1);
  return /[.!?]$/.test(capital) ? capital : `${capital}.`;
}
