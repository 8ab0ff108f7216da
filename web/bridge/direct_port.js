import { createEngineHost } from './engine_host.js';

/** The engine on the page's own thread behind the members of a Worker, messages cloned as a Worker would. */
class DirectPort {
  /** @type {((event: {data: object}) => void) | null} */
  onmessage = null;
  onerror = null;
  #host;

  constructor() {
    this.#host = createEngineHost({ post: (message) => this.onmessage?.({ data: message }), direct: true });
  }

  /** @param {object} message @param {Transferable[]} [transfer] */
  postMessage(message, transfer = []) {
    this.#host.handle(structuredClone(message, { transfer }));
  }

  terminate() {
    this.onmessage = null;
    this.#host.close();
  }
}

/** @returns {{port: DirectPort, release: () => void}} */
export function openDirectPort() {
  return { port: new DirectPort(), release() {} };
}
