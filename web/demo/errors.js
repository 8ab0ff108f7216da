/** Turns what the bridge throws into a sentence for a person, followed by what to do about it. */

const HTTP_STATUS = /(?:status |shard: )([345]\d\d)\b/;
const BRIDGE_PREFIX = /^Failed to (load GGUF model|fetch model shard): /;

// The first row that matches wins, by the engine's stable error code or by the text. A row without `says` leaves the
// engine's own sentence, which then tells more than this page could.
const EXPLANATIONS = [
  {
    text: /(?:status |shard: )4(04|10)\b/,
    says: ({ status }) => `There is no file at this address (status ${status}).`,
    todo: "Check the address, or choose another model.",
  },
  {
    text: /(?:status |shard: )40[13]\b/,
    says: ({ status }) => `The server does not give this file to everyone (status ${status}).`,
    todo: "Download it where you are signed in, and choose it from this computer.",
  },
  {
    text: HTTP_STATUS,
    says: ({ status }) => `The server did not send the file (status ${status}).`,
    todo: "Wait a moment and load it again.",
  },
  {
    text: /not a GGUF file/i,
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
    code: "NETWORK",
    text: /failed to fetch|networkerror|network error|load failed|cors/i,
    says: () => "The file could not be read: the server did not answer, or it does not let other sites read its files (CORS).",
    todo: "Check the connection, or download the file and choose it from this computer.",
  },
  {
    text: /webgpu|no adapter|navigator\.gpu/i,
    says: ({ message }) =>
      globalThis.isSecureContext ? sentence(message) : "Browsers switch WebGPU off on pages opened over plain http.",
    todo: () =>
      globalThis.isSecureContext
        ? "Use a current Chrome, Edge or Safari with graphics acceleration on, or set GPU layers to 0."
        : "Open this page over https, or from localhost.",
  },
  {
    code: "CONTEXT_OVERFLOW",
    text: /exceeds the context|context size/i,
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
    todo: "Load the model again; if that fails too, set GPU layers to 0 or use another browser.",
  },
  {
    code: "UNSUPPORTED",
    text: /not supported|unsupported/i,
    todo: "Choose another model, or another file of this one.",
  },
  {
    text: /timed? ?out|worker|script error/i,
    todo: "Load the model again; if that fails too, choose the page’s thread under the options for loading.",
  },
];

const NOT_SENTENCES = /^(undefined|null|\[object.*\])?$/;

/**
 * @param {unknown} error
 * @param {string} otherwise  what to do when nothing better is known
 */
export function explain(error, otherwise) {
  const whole = String(error?.message ?? error).trim();
  const message = whole.replace(BRIDGE_PREFIX, "");
  const row = EXPLANATIONS.find(({ code, text }) => (code && code === error?.code) || text.test(whole));
  const said = row?.says?.({ message, status: whole.match(HTTP_STATUS)?.[1] }) ?? sentence(message);
  const todo = typeof row?.todo === "function" ? row.todo() : row?.todo;
  return `${said} ${todo ?? otherwise}`;
}

/** Whether this is what an abort by the person looks like, not a failure. */
export function isAbort(error) {
  return error?.name === "AbortError";
}

/** A message of the engine as a sentence: it begins with a capital and ends with a full stop. */
export function sentence(message) {
  if (NOT_SENTENCES.test(message)) return "Something went wrong, and the engine did not say what.";
  const capital = message[0].toUpperCase() + message.slice(1);
  return /[.!?]$/.test(capital) ? capital : `${capital}.`;
}
