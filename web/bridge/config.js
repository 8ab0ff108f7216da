/** What of the page's config crosses to the engine: a whitelist, so that it can always be cloned. */

const DEFAULT_LOG_LEVEL = 2;

const string = (value) => (typeof value === 'string' ? value : undefined);
const boolean = (value) => (typeof value === 'boolean' ? value : undefined);
const positive = (value) => (Number(value) > 0 ? Number(value) : undefined);
const finite = (value) => (Number.isFinite(value) ? value : undefined);
const isTrue = (value) => value === true;

const KEPT = {
  wasmUrl: string,
  wasmUrlMem64: string,
  coreModuleUrl: string,
  coreModuleUrlMem64: string,
  userAgent: string,
  cacheName: string,
  preferMemory64: boolean,
  threads: positive,
  threadsBatch: positive,
  threadPoolSize: positive,
  nBatch: positive,
  nUbatch: positive,
  remoteFetchThresholdBytes: positive,
  remoteFetchChunkBytes: positive,
  mediaMaxImagePixels: positive,
  mediaMaxImageEdge: positive,
  nGpuLayers: finite,
  disableImageDownscale: isTrue,
  allowAutoRemoteFetchBackend: isTrue,
  useModelChatTemplate: (value) => (value === true ? true : undefined),
  logLevel: (value) => (Number.isFinite(value) ? clampLogLevel(value) : DEFAULT_LOG_LEVEL),
  workerRequestTimeoutMs: finite,
  workerInitTimeoutMs: finite,
  workerModelLoadTimeoutMs: finite,
  workerMmprojLoadTimeoutMs: finite,
  workerCompletionTimeoutMs: finite,
  workerTextToSpeechTimeoutMs: finite,
  workerGenerationStallTimeoutMs: finite,
  coreInitTimeoutMs: finite,
};

/** @param {Record<string, unknown>} config */
export function engineConfig(config) {
  return Object.fromEntries(Object.entries(KEPT).map(([key, keep]) => [key, keep(config[key])]));
}

/** Levels: 0 none, 1 debug and up, 2 info and up, 3 warnings and up, 4 errors only. @param {number} level */
export function clampLogLevel(level) {
  return Math.min(Math.max(Math.trunc(level), 0), 4);
}
