/**
 * How long the page waits for the worker, in milliseconds.
 *
 * A setting that is missing, not finite or not positive falls to the next one: method, then global, then built-in.
 */

const SECOND = 1000;
const MINUTE = 60 * SECOND;

const REQUEST_RANGE = [5 * SECOND, 60 * MINUTE];
const INIT_RANGE = [3 * SECOND, 2 * MINUTE];
const STALL_RANGE = [5 * SECOND, 5 * MINUTE];

const DEFAULT_REQUEST = 2 * MINUTE;
const DEFAULT_INIT = 20 * SECOND;
const DEFAULT_STALL = 90 * SECOND;

/** Methods that do not use the default request budget: the setting of their own, if any, and the built-in value. */
const METHODS = {
  loadModelFromUrl: { setting: 'workerModelLoadTimeoutMs', builtIn: () => 3 * MINUTE },
  loadDraftModel: { setting: 'workerModelLoadTimeoutMs', builtIn: () => 3 * MINUTE },
  loadMultimodalProjector: { setting: 'workerMmprojLoadTimeoutMs', builtIn: () => 8 * MINUTE },
  createCompletion: { setting: 'workerCompletionTimeoutMs', builtIn: () => 6 * MINUTE },
  synthesizeSpeech: { setting: 'workerTextToSpeechTimeoutMs', builtIn: () => 20 * MINUTE },
  loadDecisionHead: { builtIn: () => 10 * MINUTE },
  loadLoraAdapter: { builtIn: () => 10 * MINUTE },
  runDecision: { builtIn: ([, sequences]) => 10 * MINUTE + sequences.length * MINUTE },
};

/** @param {Record<string, unknown>} config  the bridge's config @param {string} method @param {unknown[]} args */
export function requestBudgetMs(config, method, args) {
  const { setting, builtIn } = METHODS[method] ?? { builtIn: () => DEFAULT_REQUEST };
  return (
    clamped(config[setting], REQUEST_RANGE) ?? clamped(config.workerRequestTimeoutMs, REQUEST_RANGE) ?? builtIn(args)
  );
}

/** @param {Record<string, unknown>} config */
export function initBudgetMs(config) {
  return clamped(config.workerInitTimeoutMs, INIT_RANGE) ?? DEFAULT_INIT;
}

/** Silence allowed between token events of a completion; 0 for other methods. */
export function stallBudgetMs(config, method) {
  if (method !== 'createCompletion') return 0;
  return clamped(config.workerGenerationStallTimeoutMs, STALL_RANGE) ?? DEFAULT_STALL;
}

function clamped(value, [least, most]) {
  if (typeof value !== 'number' || !Number.isFinite(value) || value <= 0) return undefined;
  return Math.min(Math.max(Math.trunc(value), least), most);
}
