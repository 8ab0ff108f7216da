/** Starts the reader's worker: a module Worker in a browser, a worker thread in Node. */

/**
 * @param {string} assetBase
 * @param {{onMessage: (message: object) => void, onFailure: (text: string) => void}} handlers
 * @returns {Promise<{post: (message: object, transfer?: Transferable[]) => void, hold: (busy: boolean) => void,
 *   terminate: () => void}>}  hold(true) keeps a Node process alive while calls are under way
 */
export function startWorker(assetBase, handlers) {
  return typeof globalThis.Worker === 'function' ? startInBrowser(assetBase, handlers) : startInNode(assetBase, handlers);
}

async function startInBrowser(assetBase, { onMessage, onFailure }) {
  const url = new URL('../../worker/gguf_worker.js', import.meta.url);
  url.searchParams.set('assets', assetBase);
  const worker = moduleWorker(url.href);
  worker.onmessage = ({ data }) => onMessage(data);
  worker.onerror = (event) => {
    event.preventDefault?.(); // it is reported through the calls
    onFailure(event.message || 'its script could not be loaded');
  };
  return { post: (message, transfer = []) => worker.postMessage(message, transfer), hold() {}, terminate: () => worker.terminate() };
}

/** A worker's script must come from the page's own origin; one that does not is imported from a blob. */
function moduleWorker(href) {
  try {
    return new Worker(href, { type: 'module' });
  } catch (error) {
    if (error?.name !== 'SecurityError') throw error;
    const blob = URL.createObjectURL(new Blob([`import ${JSON.stringify(href)};`], { type: 'text/javascript' }));
    const worker = new Worker(blob, { type: 'module' });
    worker.addEventListener('message', () => URL.revokeObjectURL(blob), { once: true });
    return worker;
  }
}

async function startInNode(assetBase, { onMessage, onFailure }) {
  const { Worker } = await import('node:worker_threads');
  const worker = new Worker(new URL('../../worker/gguf_worker_node.js', import.meta.url), { workerData: assetBase });
  worker.unref();
  worker.on('message', onMessage);
  worker.on('error', (error) => onFailure(String(error?.message ?? error)));
  return {
    post: (message, transfer = []) => worker.postMessage(message, transfer),
    hold: (busy) => (busy ? worker.ref() : worker.unref()),
    terminate: () => worker.terminate(),
  };
}
