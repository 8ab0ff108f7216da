/**
 * Stands in for web/llama_webgpu_bridge.js in tests of the demo page: same public members, no engine.
 *
 * What it does is scripted by `globalThis.bridgeScript`, which a test may set before the page starts and change later;
 * what it was asked is in `globalThis.bridgeCalls`.
 */

const DEFAULT_SCRIPT = {
  bytes: 98_362_432,
  loadSteps: 4,
  stepMs: 5,
  loadError: null, // {message, code?, name?}
  holdLoadAt: null, // step at which a load waits until it is aborted
  prefillMs: 5,
  answer: "Hello from the mock.",
  tokenMs: 2,
  finishReason: "stop",
  answerError: null,
  failAfter: 0, // pieces that arrive before answerError
  chatTemplate: "{{ messages }}",
  templateError: null,
  tokensPerCharacter: 0.25,
  supportsUsage: true,
  runtimeNotes: "boot:plain;some_new_note:3",
  adapter: JSON.stringify({ vendor: "acme", architecture: "roadrunner-2", device: "", description: "" }),
};

const script = () => ({ ...DEFAULT_SCRIPT, ...globalThis.bridgeScript });
const calls = (globalThis.bridgeCalls = []);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export class LlamaWebGpuBridge {
  static get supportsCompletionUsage() {
    return script().supportsUsage;
  }

  #config;
  #nCtx = 0;
  #isDisposed = false;

  constructor(config = {}) {
    this.#config = config;
    calls.push({ method: "constructor", config });
  }

  async loadModelFromUrl(url, { signal, progressCallback, ...options } = {}) {
    calls.push({ method: "loadModelFromUrl", url, options });
    this.#nCtx = 0;
    const { bytes, loadSteps, holdLoadAt, loadError } = script();
    for (let step = 1; step <= loadSteps; step++) {
      await sleep(script().stepMs);
      if (step === holdLoadAt) await aborted(signal);
      throwIfAborted(signal, "Model load was cancelled.");
      if (loadError && step === loadSteps) throw failure(loadError);
      progressCallback?.({ loaded: Math.round((bytes * step) / loadSteps), total: bytes });
    }
    this.#nCtx = options.nCtx ?? 4096;
    return 1;
  }

  async renderChatTemplate(messages, { addAssistant } = {}) {
    const { templateError } = script();
    if (templateError) throw failure(templateError);
    const turns = messages.map(({ role, content }) => `<|${role}|>${content}`);
    return turns.join("") + (addAssistant ? "<|assistant|>" : "");
  }

  async applyChatTemplate(messages, addAssistant = true) {
    return messages.map(({ role, content }) => `${role}: ${content}`).join("\n") + (addAssistant ? "\nassistant: " : "");
  }

  async tokenize(text) {
    return new Array(Math.ceil(text.length * script().tokensPerCharacter)).fill(0);
  }

  async createCompletion(prompt, { signal, onToken, onUsage, ...options } = {}) {
    calls.push({ method: "createCompletion", prompt, options });
    const { answer, answerError, failAfter, prefillMs, finishReason } = script();
    const started = performance.now();
    await sleep(prefillMs);
    const firstAt = performance.now();
    const pieces = answer.match(/\s*\S+|\s+$/g) ?? [];
    let text = "";
    let count = 0;
    const report = (reason) => onUsage?.(usage(prompt, count, reason, { started, firstAt }));
    for (const piece of pieces) {
      if (answerError && count === failAfter) throw failure(answerError);
      if (signal?.aborted) {
        report("cancelled");
        if (this.#config.disableWorker) return text;
        throwIfAborted(signal, "Generation was cancelled.");
      }
      text += piece;
      count++;
      onToken?.(options.tokenEventEncoding === "text" ? piece : new TextEncoder().encode(piece), text);
      await sleep(script().tokenMs);
    }
    if (answerError && count <= failAfter) throw failure(answerError);
    report(finishReason);
    return text;
  }

  getModelMetadata() {
    if (!this.#nCtx) return {};
    return {
      "general.name": "Mock 135M",
      "general.architecture": "llama",
      "general.size_label": "135M",
      "general.file_type": "3",
      "general.license": "apache-2.0",
      ...(script().chatTemplate ? { "tokenizer.chat_template": script().chatTemplate } : {}),
      "llama.block_count": "30",
      "llama.context_length": "8192",
      "llamadart.webgpu.execution": this.#config.disableWorker ? "main-thread" : "worker",
      "llamadart.webgpu.model_bytes": String(script().bytes),
      "llamadart.webgpu.n_threads": "1",
      "llamadart.webgpu.model_source": "network",
      "llamadart.webgpu.runtime_notes": script().runtimeNotes,
      "llamadart.webgpu.adapter": script().adapter,
    };
  }

  getContextSize() {
    return this.#nCtx;
  }

  getBackendName() {
    return "WebGPU";
  }

  isGpuActive() {
    return this.#nCtx > 0;
  }

  async dispose() {
    calls.push({ method: "dispose", again: this.#isDisposed });
    this.#isDisposed = true;
    this.#nCtx = 0;
  }
}

function usage(prompt, completionTokens, finishReason, { started, firstAt }) {
  const now = performance.now();
  return {
    promptTokens: Math.ceil(prompt.length * script().tokensPerCharacter),
    cachedPromptTokens: 0,
    completionTokens,
    timeToFirstTokenMs: completionTokens ? firstAt - started : null,
    durationMs: now - started,
    promptMs: firstAt - started,
    decodeMs: now - firstAt,
    finishReason,
  };
}

function failure({ message, code, name = "Error" }) {
  return Object.assign(new Error(message), { name }, code ? { code } : {});
}

function throwIfAborted(signal, message) {
  if (signal?.aborted) throw new DOMException(message, "AbortError");
}

function aborted(signal) {
  return new Promise((resolve) => (signal.aborted ? resolve() : signal.addEventListener("abort", resolve, { once: true })));
}
