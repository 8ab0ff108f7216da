/**
 * Every call that this site makes to the bridge. Read this file to build a page of your own; nothing else here touches
 * the engine.
 */

import { sentence } from "./errors.js";

const ROOM_FOR_ANSWER = 0.25; // at most this part of the context is kept free by leaving out old turns

export class Engine {
  #bridge = null;
  #execution = null;
  #blobUrl = null;

  /**
   * Loads a model, in place of the one before.
   * @param {string | File} source
   * @param {{nCtx: number, execution: "worker" | "page", nGpuLayers: number | null}} options
   * @param {{onProgress: (progress: {loaded: number, total: number}) => void, signal: AbortSignal}} control
   */
  async load(source, { nCtx, execution, nGpuLayers }, { onProgress, signal }) {
    const LlamaWebGpuBridge = await bridgeClass();
    if (this.#execution !== execution) await this.unload();
    this.#bridge ??= new LlamaWebGpuBridge({ disableWorker: execution === "page" });
    this.#execution = execution;

    const isFile = source instanceof File;
    this.#releaseFile();
    if (isFile) this.#blobUrl = URL.createObjectURL(source); // stays valid: the bridge may have to read it again
    await this.#bridge.loadModelFromUrl(isFile ? this.#blobUrl : source, {
      nCtx,
      useCache: !isFile,
      ...(nGpuLayers === null ? {} : { nGpuLayers }),
      progressCallback: onProgress,
      signal,
    });
  }

  /**
   * Answers the last turn.
   * @param {{role: string, content: string}[]} turns  the system prompt, if any, first
   * @param {object} sampling  options of createCompletion
   * @param {{onText: (piece: string) => void, signal: AbortSignal}} control
   * @returns {Promise<{usage: object | null, notes: string[]}>} the text has all gone through `onText`
   */
  async answer(turns, sampling, { onText, signal }) {
    const { supportsCompletionUsage } = await bridgeClass();
    const notes = [];
    const prompt = await this.#fittingPrompt(turns, sampling.nPredict, notes);
    signal.throwIfAborted();

    let usage = null;
    const decoder = new TextDecoder();
    const options = {
      ...sampling,
      signal,
      tokenEventEncoding: "text",
      onToken: (piece) => onText(typeof piece === "string" ? piece : decoder.decode(piece, { stream: true })),
    };
    if (supportsCompletionUsage) options.onUsage = (reported) => (usage = reported);
    try {
      await this.#bridge.createCompletion(prompt, options);
    } catch (error) {
      // A worker rejects a stopped answer and the page's own thread resolves it; here both are an answer that was stopped.
      if (error.name !== "AbortError") throw error;
    }
    return { usage, notes };
  }

  /** Frees the model and everything around it. */
  async unload() {
    const bridge = this.#bridge;
    this.#bridge = this.#execution = null;
    this.#releaseFile();
    await bridge?.dispose();
  }

  /** What the bridge says of the loaded model and of itself. */
  facts() {
    const bridge = this.#bridge;
    return {
      metadata: bridge?.getModelMetadata() ?? {},
      contextSize: bridge?.getContextSize() ?? 0,
      backend: bridge?.getBackendName() ?? "",
      isGpuActive: bridge?.isGpuActive() ?? false,
    };
  }

  /** The prompt for as many of the latest turns as the context holds; says in `notes` what had to be left out. */
  async #fittingPrompt(turns, nPredict, notes) {
    const system = turns.filter((turn) => turn.role === "system");
    const talk = turns.slice(system.length);
    const nCtx = this.#bridge.getContextSize();
    const room = nCtx - Math.min(nPredict, Math.floor(nCtx * ROOM_FOR_ANSWER));
    let prompt = await this.#render([...system, ...talk], notes);
    let leftOut = 0;
    // A token stands for at least one byte, so most prompts need no count.
    while (talk.length > 1 && byteLength(prompt) > room && (await this.#bridge.tokenize(prompt)).length > room) {
      leftOut += talk.splice(0, 2).length;
      prompt = await this.#render([...system, ...talk], []);
    }
    if (leftOut) notes.push(`The first ${leftOut} messages no longer fit the context and were left out.`);
    return prompt;
  }

  async #render(turns, notes) {
    if (!this.#bridge.getModelMetadata()["tokenizer.chat_template"]) {
      notes.push("This model was made without a chat template, so a plain format was used.");
      return this.#bridge.applyChatTemplate(turns, true);
    }
    try {
      return await this.#bridge.renderChatTemplate(turns, { addAssistant: true });
    } catch (error) {
      notes.push(`A plain format was used in the place of the model’s own chat template. ${sentence(error.message)}`);
      return this.#bridge.applyChatTemplate(turns, true);
    }
  }

  #releaseFile() {
    if (this.#blobUrl) URL.revokeObjectURL(this.#blobUrl);
    this.#blobUrl = null;
  }
}

/** Loaded with the first model, so that the page is there before the engine, and a missing engine can be reported. */
async function bridgeClass() {
  return (await import("../llama_webgpu_bridge.js")).LlamaWebGpuBridge;
}

function byteLength(text) {
  return new TextEncoder().encode(text).length;
}
