/**
 * Starts the bridge's worker and hides how: its own entry file, the bridge module itself in worker mode, or either of the
 * two imported from a blob (the only way for scripts of another origin).
 */

const WORKER_ENTRY = '../worker/llama_webgpu_bridge_worker.js';
const WORKER_SUFFIX = '_worker.js';
/** Marks a worker whose script is the bridge module; the module then installs the host by itself. */
export const WORKER_MODE_PARAMETER = '__llamadartBridgeWorker';

/** @param {Record<string, unknown>} config */
export function canUseWorker(config) {
  return (
    config.disableWorker !== true &&
    config.coreModuleFactory == null &&
    typeof globalThis.Worker === 'function' &&
    typeof globalThis.Blob === 'function' &&
    typeof globalThis.URL?.createObjectURL === 'function'
  );
}

/**
 * @param {unknown} workerUrl  the config's `workerUrl`
 * @param {string} bridgeUrl  where the bridge module lies
 * @param {string} pageUrl
 * @returns {{port: Worker, release: () => void}}  `release` frees what the start needed, once the worker is gone
 * @throws the last failure when no candidate could be started
 */
export function startWorker(workerUrl, bridgeUrl, pageUrl) {
  const given = typeof workerUrl === 'string' ? workerUrl.trim() : '';
  const candidates = given
    ? scriptCandidates(new URL(given, pageUrl))
    : [new URL(WORKER_ENTRY, bridgeUrl), new URL(bridgeUrl)];
  let failure;
  for (const start of [startFromUrl, startFromBlob]) {
    for (const url of candidates) {
      try {
        return start(url);
      } catch (error) {
        failure = error;
      }
    }
  }
  throw failure ?? new Error('Failed to initialize bridge worker');
}

function scriptCandidates(entry) {
  if (!entry.pathname.endsWith(WORKER_SUFFIX)) return [entry];
  const bridge = new URL(entry);
  bridge.pathname = entry.pathname.slice(0, -WORKER_SUFFIX.length) + '.js';
  bridge.searchParams.delete(WORKER_MODE_PARAMETER);
  return [entry, bridge];
}

function startFromUrl(url) {
  const script = new URL(url);
  if (!script.pathname.endsWith(WORKER_SUFFIX)) script.searchParams.set(WORKER_MODE_PARAMETER, '1');
  return { port: new Worker(script.href, { type: 'module' }), release() {} };
}

function startFromBlob(url) {
  const source = `import * as entry from ${JSON.stringify(url.href)};
if (typeof entry.enableBridgeWorkerHost === 'function') entry.enableBridgeWorkerHost();
`;
  const blobUrl = URL.createObjectURL(new Blob([source], { type: 'text/javascript' }));
  try {
    return { port: new Worker(blobUrl, { type: 'module' }), release: () => URL.revokeObjectURL(blobUrl) };
  } catch (error) {
    URL.revokeObjectURL(blobUrl);
    throw error;
  }
}
