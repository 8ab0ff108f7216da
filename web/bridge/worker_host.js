import { createEngineHost } from './engine_host.js';

let installed = false;

/**
 * Make this worker answer the bridge's messages; a second call does nothing.
 * @throws {Error} outside a worker
 */
export function enableBridgeWorkerHost() {
  if (installed) return;
  const isPage = typeof globalThis.document !== 'undefined';
  if (isPage || typeof globalThis.self?.postMessage !== 'function') {
    throw new Error('Bridge worker host can only run inside a worker context');
  }
  installed = true;
  const host = createEngineHost({ post: (message, transfer) => self.postMessage(message, transfer) });
  self.onmessage = ({ data }) => host.handle(data);
}
