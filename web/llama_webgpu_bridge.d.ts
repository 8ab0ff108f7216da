/** Run GGUF language models in a page. Members marked "beyond the documented API" are this project's own. */

export type LogLevel = string | number;
export type ByteInput = ArrayBuffer | ArrayBufferView | ArrayLike<number>;
export type TokenIds = number[] | ArrayLike<number>;
export type ChatMessage = Record<string, unknown>;

export interface LlamaWebGpuBridgeConfig {
  /** Accepted for compatibility: this engine brings its own core. */
  coreModuleUrl?: string;
  coreModuleUrlMem64?: string;
  wasmUrl?: string;
  wasmUrlMem64?: string;
  /** Only its presence counts: it keeps the engine on the page's own thread. */
  coreModuleFactory?: unknown;
  /** The worker's entry; by default ../worker/llama_webgpu_bridge_worker.js beside this module's folder. */
  workerUrl?: string;
  disableWorker?: boolean;
  /** 64-bit addresses on the CPU backend: for all models, for none, or by default for those that need more than 4 GiB. */
  preferMemory64?: boolean;
  /** Milliseconds; clamped to 5 s … 1 h. Method settings go before this one. */
  workerRequestTimeoutMs?: number;
  /** Milliseconds; clamped to 3 s … 2 min, 20 s by default. */
  workerInitTimeoutMs?: number;
  workerModelLoadTimeoutMs?: number;
  workerMmprojLoadTimeoutMs?: number;
  workerCompletionTimeoutMs?: number;
  workerTextToSpeechTimeoutMs?: number;
  /** Milliseconds; clamped to 5 s … 5 min, 90 s by default. */
  workerGenerationStallTimeoutMs?: number;
  /** Milliseconds; clamped to 10 s … 10 min, 90 s by default. */
  coreInitTimeoutMs?: number;
  cacheName?: string;
  threads?: number;
  threadsBatch?: number;
  threadPoolSize?: number;
  nBatch?: number;
  nUbatch?: number;
  nGpuLayers?: number;
  userAgent?: string;
  remoteFetchThresholdBytes?: number;
  remoteFetchChunkBytes?: number;
  mediaMaxImagePixels?: number;
  mediaMaxImageEdge?: number;
  disableImageDownscale?: boolean;
  allowAutoRemoteFetchBackend?: boolean;
  /** 0 none, 1 debug, 2 info (default), 3 warnings, 4 errors. */
  logLevel?: LogLevel;
  /** Takes the bridge's own warnings instead of the console. */
  logger?: { warn(text: string): void; error?(text: string, cause?: unknown): void };
  /** The same warning is not repeated for so long: 5000 by default, clamped to 500 … 60000. */
  warnDedupWindowMs?: number;
  /** Beyond the documented API: applyChatTemplate renders the loaded model's own template where it has one. */
  useModelChatTemplate?: boolean;
  [key: string]: unknown;
}

export interface LoadProgress {
  loaded: number;
  total: number;
  shard?: number;
  shards?: number;
  url?: string;
}

export interface LoadModelOptions {
  progressCallback?: (progress: LoadProgress) => void;
  signal?: AbortSignal;
  /** Context size in tokens; the last one of this bridge by default, at first 4096. */
  nCtx?: number;
  nThreads?: number;
  nThreadsBatch?: number;
  nGpuLayers?: number;
  nBatch?: number;
  nUbatch?: number;
  nSeqMax?: number;
  useMmap?: boolean;
  useMlock?: boolean;
  flashAttention?: -1 | 0 | 1;
  /** 1 F16, 2 Q4_0, 8 Q8_0. */
  cacheTypeK?: number;
  cacheTypeV?: number;
  kvUnified?: boolean | number;
  ropeFrequencyBase?: number;
  ropeFrequencyScale?: number;
  splitMode?: number;
  mainGpu?: number;
  useCache?: boolean;
  force?: boolean;
  cacheName?: string;
  streamResumeRetries?: number;
  fetchTimeoutMs?: number;
  streamChunkTimeoutMs?: number;
  remoteFetchThresholdBytes?: number;
  remoteFetchChunkBytes?: number;
  loadMtp?: boolean;
  speculativeRollbackTokenMax?: number;
  [key: string]: unknown;
}

/** Beyond the documented API. */
export interface CacheEntry {
  url: string;
  /** Null where the server did not say how long the file is. */
  bytes: number | null;
  /** ISO 8601; null for an entry that another program stored. */
  storedAt: string | null;
  /** The file's ETag or its date, if there was one. */
  validator: string | null;
}

/** Beyond the documented API. Bytes, but for the context sizes; `nCtxTrain` is 0 and `fileBytes` null where untold. */
export interface MemoryEstimate {
  architecture: string;
  nCtx: number;
  nCtxTrain: number;
  fileBytes: number | null;
  weightBytes: number;
  cacheBytes: number;
  scratchBytes: number;
  totalBytes: number;
}

export interface DraftModelLoadOptions {
  progressCallback?: (progress: LoadProgress) => void;
  signal?: AbortSignal;
  useCache?: boolean;
  force?: boolean;
}

export interface DraftModelInfo {
  architecture: string;
  strategy?: 'draft-dflash' | 'draft-dspark';
}

export type SpeculativeStrategy =
  | 'draft-simple'
  | 'draft-eagle3'
  | 'draft-mtp'
  | 'draft-dflash'
  | 'draft-dspark'
  | 'ngram-simple'
  | 'ngram-map-k'
  | 'ngram-map-k4v'
  | 'ngram-mod'
  | 'ngram-cache';

export interface SpeculativeDecodingOptions {
  strategies: SpeculativeStrategy[];
  draftTokenMax?: number;
  draftTokenMin?: number;
  minProbability?: number;
  draftSplitProbability?: number;
  ngramSizeN?: number;
  ngramSizeM?: number;
  ngramMinHits?: number;
  ngramMatch?: number;
  ngramTokenMin?: number;
  ngramTokenMax?: number;
  ngramCacheStatic?: string | ArrayBuffer | ArrayBufferView;
  ngramCacheDynamic?: string | ArrayBuffer | ArrayBufferView;
}

export interface ThinkingBudget {
  maxTokens: number;
  startTag: string;
  endTag: string;
  forcedMessage?: string;
}

export type MediaPart =
  | { type: 'text'; text: string }
  | { type: 'image'; bytes?: ByteInput; url?: string; width?: number; height?: number }
  | { type: 'audio'; samples?: ArrayLike<number>; bytes?: ByteInput; url?: string };

export interface CompletionUsage {
  promptTokens: number;
  cachedPromptTokens: number;
  completionTokens: number;
  timeToFirstTokenMs: number | null;
  durationMs: number;
  finishReason: 'stop' | 'length' | 'cancelled';
  speculative?: {
    draftTokens: number;
    acceptedDraftTokens: number;
    draftAttempts: number;
    verifyTokens: number;
    replayTokens: number;
  };
  /** Beyond the documented API: the part of the duration spent on the prompt, and the rest. */
  promptMs?: number;
  decodeMs?: number;
}

export interface CompletionOptions {
  /** 256 by default. */
  nPredict?: number;
  /** 0.8 by default; 0 always takes the most likely token. */
  temp?: number;
  /** 40 by default; 0 is off. */
  topK?: number;
  /** 0.95 by default; 1 is off. */
  topP?: number;
  /** From 0 (off, the default) to 1. */
  minP?: number | null;
  /** 1.1 by default; 1 is off. */
  penalty?: number;
  /** 0 (off) by default. */
  presencePenalty?: number | null;
  grammar?: string;
  /** An integer, taken modulo 2^32; random by default. */
  seed?: number;
  thinkingBudget?: ThinkingBudget | null;
  speculativeDecoding?: SpeculativeDecodingOptions | null;
  onUsage?: (usage: CompletionUsage) => void;
  /** `currentText` is null only on the page's own thread with `emitCurrentTextOnToken: false`. */
  onToken?: (piece: Uint8Array | string, currentText: string | null, details?: TokenDetail[]) => void;
  /**
   * Beyond the documented API: 1 to 100 gives onToken the tokens since its last call, each with its score and those of so
   * many of the most probable ones; 0 (off) by default.
   */
  nProbs?: number;
  /** Beyond the documented API: texts at which the answer ends, without them. */
  stop?: string | string[] | null;
  /** Beyond the documented API: what is added to the logits of tokens, by token id; -Infinity rules one out. */
  logitBias?: Record<number, number> | null;
  signal?: AbortSignal;
  warmup?: boolean;
  emitCurrentTextOnToken?: boolean;
  tokenEventEncoding?: 'bytes' | 'text';
  /** A worker gathers pieces for so long: 0 (off, the default) to 200. */
  tokenEventFlushMs?: number;
  /** … or until they have so many characters: 0 (off, the default), 1 to 1024. */
  tokenEventFlushChars?: number;
  parts?: MediaPart[];
  mediaMaxPredict?: number;
  [key: string]: unknown;
}

export interface CompletionCapabilities {
  presencePenalty: boolean;
  minP: boolean;
  thinkingBudget: boolean;
  speculativeDecoding: Record<SpeculativeStrategy, boolean>;
}

export type EmbedPart =
  | { type: 'text'; text: string }
  | { type: 'image'; bytes?: Uint8Array; url?: string; width?: number; height?: number }
  | { type: 'audio'; samples?: Float32Array; bytes?: Uint8Array; url?: string };
export type EmbedInput = string | EmbedPart[];

export interface EmbeddingCapabilities {
  apiVersion: 1;
  text: boolean;
  image: boolean;
  audio: boolean;
}

export type EmbeddingErrorCode =
  | 'INVALID_EMBEDDING_INPUT'
  | 'EMBEDDING_CAPABILITY_UNAVAILABLE'
  | 'MODEL_NOT_EMBEDDING'
  | 'EMBEDDING_PROJECTOR_MISSING'
  | 'EMBEDDING_MODALITY_UNSUPPORTED'
  | 'EMBEDDING_INPUT_TOO_LARGE'
  | 'EMBEDDING_FAILED';

export class EmbeddingError extends Error {
  constructor(message: string, code: EmbeddingErrorCode);
  readonly code: EmbeddingErrorCode;
}

/** Beyond the documented API: a document as a reranking model sees it. */
export interface RankedDocument {
  /** The first label: the higher, the better the document answers the query. */
  score: number;
  /** All outputs of the model's head. */
  labels: number[];
  promptTokens: number;
}

export interface ScoredToken {
  token: number;
  bytes: Uint8Array;
  logprob: number;
}

/** Beyond the documented API: a generated token. */
export interface TokenDetail extends ScoredToken {
  top: ScoredToken[];
}

export interface NextTokenScores {
  candidates: ScoredToken[];
  top: ScoredToken[];
  promptTokens: number;
}

export interface TextToSpeechCapabilities {
  apiVersion: number;
  supported: boolean;
  modelType: number;
  capabilities: number;
  supportsLanguage: boolean;
  supportsSpeakerReference: boolean;
  sampleRate: number;
  channels: number;
  reason?: string;
}

export interface TextToSpeechProgress {
  state: number;
  promptTokensRemaining: number;
  framesGenerated: number;
  truncated: boolean;
}

export interface TextToSpeechOptions {
  text: string;
  language?: string;
  speakerAudio?: ByteInput;
  promptBatchSize?: number;
  maxFrames?: number;
  topK?: number;
  topP?: number;
  minP?: number;
  temperature?: number;
  seed?: number;
  signal?: AbortSignal;
  onProgress?: (progress: TextToSpeechProgress) => void;
}

export interface TextToSpeechResult {
  pcm: Float32Array;
  sampleRate: number;
  channels: number;
  sampleCount: number;
  framesGenerated: number;
  truncated: boolean;
}

export interface DecisionCapabilities {
  apiVersion: number;
  supported: boolean;
  reason?: string;
}

export interface DecisionHeadInfo {
  handle: number;
  [key: string]: unknown;
}

export interface DecisionSequence {
  tokens: ArrayLike<number>;
  markers: ArrayLike<number>;
  questionType: number;
}

export interface DecisionOutput {
  logits: Float32Array;
  actLogits: Float32Array;
}

export interface LoraAdapterCapabilities {
  apiVersion: number;
  supported: boolean;
  reason?: string;
}

export interface LoraAdapterLoadOptions {
  progressCallback?: (progress: LoadProgress) => void;
  signal?: AbortSignal;
  useCache?: boolean;
  cacheName?: string;
}

export interface LoraAdapterInfo {
  handle: number;
}

/** Beyond the documented API: `addAssistant` opens the assistant's turn; any other key is a variable of the template. */
export interface ChatTemplateOptions {
  addAssistant?: boolean;
  /** A Jinja template in the place of the model's own. */
  template?: string | null;
  [variable: string]: unknown;
}

export class LlamaWebGpuBridge {
  static readonly supportsSafariAdaptiveGpu: boolean;
  static readonly supportsCompletionUsage: boolean;

  constructor(config?: LlamaWebGpuBridgeConfig);

  loadModelFromUrl(url: string | string[], options?: LoadModelOptions): Promise<unknown>;
  prefetchModelToCache(url: string | string[], options?: LoadModelOptions): Promise<unknown>;
  evictModelFromCache(url: string | string[], options?: { cacheName?: string; [key: string]: unknown }): Promise<boolean>;
  /** Beyond the documented API: what a load with these options would take, from the model's header alone. */
  estimateMemory(url: string | string[], options?: LoadModelOptions): Promise<MemoryEstimate>;
  /** Beyond the documented API: the entries of the model cache, `cacheName` or the bridge's. */
  listCache(options?: { cacheName?: string }): Promise<CacheEntry[]>;
  loadMultimodalProjector(url: string): Promise<unknown>;
  unloadMultimodalProjector(): Promise<unknown>;
  loadDraftModel(url: string, options?: DraftModelLoadOptions): Promise<DraftModelInfo>;
  unloadDraftModel(): Promise<void>;

  createCompletion(prompt: string, options?: CompletionOptions): Promise<string>;
  getCompletionCapabilities(): Promise<CompletionCapabilities>;
  tokenize(text: string, addSpecial?: boolean): Promise<number[]>;
  detokenize(tokens: TokenIds, special?: boolean): Promise<string>;
  applyChatTemplate(messages: ChatMessage[], addAssistant?: boolean, customTemplate?: string | null): Promise<string>;
  /** Beyond the documented API: a prompt by the loaded model's own Jinja template. */
  renderChatTemplate(messages: ChatMessage[], options?: ChatTemplateOptions): Promise<string>;

  stateSaveFile(path: string, tokens?: TokenIds): Promise<true>;
  stateLoadFile(path: string, tokenCapacity?: number): Promise<{ tokens: number[] }>;
  stateSaveBytes(tokens?: TokenIds): Promise<Uint8Array>;
  stateLoadBytes(bytes: ByteInput, tokenCapacity?: number): Promise<{ tokens: number[] }>;

  getEmbeddingCapabilities(): Promise<EmbeddingCapabilities>;
  embed(input: EmbedInput, options?: { normalize?: boolean }): Promise<number[]>;
  embedBatch(inputs: Iterable<EmbedInput>, options?: { normalize?: boolean }): Promise<number[][]>;
  /** Beyond the documented API. */
  rank(query: string, documents: Iterable<string>): Promise<RankedDocument[]>;
  scoreNextToken(
    prompt: string,
    options?: { candidates?: ArrayLike<number>; topK?: number; reusePromptPrefix?: boolean },
  ): Promise<NextTokenScores>;

  getTextToSpeechCapabilities(): Promise<TextToSpeechCapabilities>;
  synthesizeSpeech(options: TextToSpeechOptions): Promise<TextToSpeechResult>;

  getDecisionCapabilities(): Promise<DecisionCapabilities>;
  loadDecisionHead(
    source: string | ArrayBuffer | ArrayBufferView,
    options?: { configJson?: string | null; onProgress?: (progress: LoadProgress) => void },
  ): Promise<DecisionHeadInfo>;
  runDecision(handle: number, sequences: readonly DecisionSequence[]): Promise<DecisionOutput[]>;
  freeDecisionHead(handle: number): Promise<void>;

  getLoraAdapterCapabilities(): Promise<LoraAdapterCapabilities>;
  loadLoraAdapter(
    source: string | ArrayBuffer | ArrayBufferView,
    options?: LoraAdapterLoadOptions,
  ): Promise<LoraAdapterInfo>;
  setLoraAdapter(handle: number, scale?: number): Promise<void>;
  removeLoraAdapter(handle: number): Promise<void>;
  clearLoraAdapters(): Promise<void>;

  getModelMetadata(): Record<string, unknown> | null;
  getContextSize(): number;
  isGpuActive(): boolean;
  getBackendName(): string;
  supportsVision(): boolean;
  supportsAudio(): boolean;
  /** Beyond the documented API: live and total objects of the engine. */
  debugCounters(): Promise<Record<string, number>>;

  setLogLevel(level: LogLevel): void;
  cancel(): void;
  dispose(): Promise<void>;
}

/** Makes the worker it is called in answer a bridge; called again it does nothing. */
export function enableBridgeWorkerHost(): void;

declare global {
  interface Window {
    LlamaWebGpuBridge?: typeof LlamaWebGpuBridge;
  }
}
