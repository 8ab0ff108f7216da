/**
 * The queued methods and what the page must know of each: its words for a cancel, and when the main thread takes over.
 *
 * `fallback`: 'unusable' when the worker cannot serve another call, 'lost' when it is gone, 'any' on every failure,
 * 'never', or 'load' for the rules of a model load. `reload`: the main thread needs the model back first.
 * `keepsPartial`: on the page's thread an abort resolves with what there is.
 *
 * @typedef {{cancelledText?: string, fallback: string, reload?: boolean, keepsPartial?: boolean}} MethodRules
 * @type {Record<string, MethodRules>}
 */
export const METHOD_RULES = {
  loadModelFromUrl: { cancelledText: 'Model load was cancelled.', fallback: 'load' },
  estimateMemory: { cancelledText: 'Memory estimate was cancelled.', fallback: 'unusable' },
  createCompletion: {
    cancelledText: 'Generation was cancelled.',
    fallback: 'unusable',
    reload: true,
    keepsPartial: true,
  },
  getCompletionCapabilities: { fallback: 'unusable', reload: true },
  tokenize: { fallback: 'unusable', reload: true },
  detokenize: { fallback: 'unusable', reload: true },
  applyChatTemplate: { fallback: 'unusable' },
  renderChatTemplate: { fallback: 'unusable', reload: true },
  embed: { fallback: 'unusable', reload: true },
  embedBatch: { fallback: 'unusable', reload: true },
  rank: { fallback: 'unusable', reload: true },
  getEmbeddingCapabilities: { fallback: 'unusable', reload: true },
  scoreNextToken: { fallback: 'unusable', reload: true },
  stateSaveFile: { fallback: 'never' },
  stateLoadFile: { fallback: 'never' },
  stateSaveBytes: { fallback: 'never' },
  stateLoadBytes: { fallback: 'never' },
  loadMultimodalProjector: { fallback: 'any', reload: true },
  unloadMultimodalProjector: { fallback: 'any' },
  loadDraftModel: { cancelledText: 'Draft model load was cancelled.', fallback: 'unusable', reload: true },
  unloadDraftModel: { fallback: 'unusable', reload: true },
  getTextToSpeechCapabilities: { fallback: 'any', reload: true },
  synthesizeSpeech: { cancelledText: 'Text-to-speech synthesis was cancelled.', fallback: 'never' },
  getDecisionCapabilities: { fallback: 'lost', reload: true },
  loadDecisionHead: { fallback: 'lost', reload: true },
  runDecision: { fallback: 'lost', reload: true },
  freeDecisionHead: { fallback: 'lost', reload: true },
  getLoraAdapterCapabilities: { fallback: 'lost', reload: true },
  loadLoraAdapter: { cancelledText: 'LoRA adapter load was cancelled.', fallback: 'lost', reload: true },
  setLoraAdapter: { fallback: 'lost', reload: true },
  removeLoraAdapter: { fallback: 'lost', reload: true },
  clearLoraAdapters: { fallback: 'lost', reload: true },
  debugCounters: { fallback: 'never' },
};
