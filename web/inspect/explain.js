/** Turns what gguf.js throws into a sentence for a person, followed by what to do about it. */

const NO_SERVER = "Download the file and choose it from this computer.";
const BY_CODE = {
  NETWORK: ["The file could not be read: the server did not answer, or it does not let other sites read its files (CORS).", NO_SERVER],
  TIMEOUT: ["The server did not answer in time.", "Try again, or choose the file from this computer."],
  RANGE_NOT_HONOURED: ["This server sends whole files only, and a model is looked into piece by piece.", NO_SERVER],
  NO_VALIDATOR: ["This server tells nothing by which a changed file could be noticed, so its parts cannot be trusted to belong together.", NO_SERVER],
  BAD_RESPONSE: [null, NO_SERVER],
  FILE_CHANGED: [null, "Open it again."],
  NOT_READABLE: [null, "Choose it again."],
  TRUNCATED_GGUF: ["The file is cut off inside its header.", "Download it again."],
  READER_FAILED: [null, "Reload the page."],
};
const BY_STATUS = {
  401: "The server does not give this file to everyone (status 401).",
  403: "The server does not give this file to everyone (status 403).",
  404: "There is no file at this address (status 404).",
};

export function explain(error) {
  if (error?.code === "HTTP_STATUS") {
    return `${BY_STATUS[error.status] ?? `The server did not send the file (status ${error.status}).`} Check the address, or choose a file from this computer.`;
  }
  const message = String(error?.message ?? error).trim();
  if (/not a GGUF file/.test(message)) {
    return "This is not a GGUF file. An address must lead to the file itself, not to a page about it.";
  }
  const [says, todo] = BY_CODE[error?.code] ?? [];
  return [says ?? sentence(message), todo].filter(Boolean).join(" ");
}

/** A message of the reader as a sentence. */
function sentence(message) {
  const capital = message ? message[0].toUpperCase() + message.slice(1) : "Something went wrong, and the reader did not say what";
  return /[.!?]$/.test(capital) ? capital : `${capital}.`;
}
