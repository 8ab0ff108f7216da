/**
 * What the synchronous getters answer from: the engine's last published state, as the page knows it.
 *
 * @typedef {{metadata: Record<string, string> | null, contextSize: number, gpuActive: boolean, backendName: string,
 *   supportsVision: boolean, supportsAudio: boolean}} EngineState
 */

/** The metadata key that is "0" when no model is loaded. */
export const MODEL_BYTES_KEY = 'llamadart.webgpu.model_bytes';

const IDLE_BACKEND = 'WASM (Prototype bridge)';
const DEFAULT_CONTEXT_SIZE = 4096;

export class Snapshot {
  constructor() {
    this.clear();
  }

  /** No model; a runtime on the page's thread (`direct`) knows its default context size before the first load. */
  clear({ direct = false } = {}) {
    this.metadata = {};
    this.contextSize = direct ? DEFAULT_CONTEXT_SIZE : 0;
    this.gpuActive = false;
    this.backendName = IDLE_BACKEND;
    this.supportsVision = false;
    this.supportsAudio = false;
  }

  /** Take over the fields that are present and valid. @param {Partial<EngineState> | undefined} state */
  apply(state) {
    if (!state || typeof state !== 'object') return;
    if (state.metadata && typeof state.metadata === 'object') this.metadata = state.metadata;
    if (Number.isFinite(state.contextSize)) this.contextSize = state.contextSize;
    if (typeof state.backendName === 'string' && state.backendName) this.backendName = state.backendName;
    for (const flag of ['gpuActive', 'supportsVision', 'supportsAudio']) {
      if (typeof state[flag] === 'boolean') this[flag] = state[flag];
    }
  }
}

/** Whether a published state says that a model is loaded. @param {Partial<EngineState> | undefined} state */
export function holdsModel(state) {
  return Number(state?.metadata?.[MODEL_BYTES_KEY]) > 0;
}
