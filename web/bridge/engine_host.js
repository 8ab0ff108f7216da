import { errorText } from './failures.js';

const CORE_INIT_RANGE_MS = [10_000, 600_000];
const DEFAULT_CORE_INIT_MS = 90_000;

/** One Pyodide per thread, shared by every bridge that runs on it. @type {Promise<object> | null} */
let engine = null;

function sharedEngine() {
  engine ??= loadEngine().catch((error) => {
    engine = null;
    throw error;
  });
  return engine;
}

/** Boots Python and returns what makes a host of it, one per bridge. */
async function loadEngine() {
  const [{ bootEngine }, modelFiles, gpuDevice, simdHost] = await Promise.all([
    import('../boot.js'),
    import('./model_files.js'),
    import('../gpu_device.js'),
    import('../simd_host.js'),
  ]);
  const modules = { model_files: modelFiles, gpu_device: gpuDevice, simd_host: simdHost };
  const { pyodide } = await bootEngine({ modules });
  const { create_host: createHost } = pyodide.pyimport('bridge.host');
  const bridgeJs = pyodide.pyimport('bridge_js');
  return { createHost: (post, config, direct) => createHost(post, bridgeJs, config, direct) };
}

/**
 * The receiving end of the wire protocol: boots the engine on `init` and hands every call to Python, which answers it.
 *
 * Python posts JSON text (it has no `null` of JavaScript's) with the binary values beside it.
 *
 * @param {{post: (message: object, transfer: Transferable[]) => void, direct?: boolean,
 *   load?: () => Promise<{createHost: Function}>}} options
 */
export function createEngineHost({ post, direct = false, load = sharedEngine }) {
  let config = null;
  let starting = null;
  let host = null;
  let closed = false;

  const postText = (text, buffers) => {
    const { message, transfer } = messageFromText(text, buffers);
    post(message, transfer);
  };

  async function start() {
    const { createHost } = await withinMs(load(), coreInitMs(config));
    host = createHost(postText, config, direct);
    if (closed) releaseHost();
  }

  function started() {
    starting ??= start().catch((error) => {
      starting = null; // the next call tries again
      throw error;
    });
    return starting;
  }

  function releaseHost() {
    host?.close();
    host?.destroy();
    host = null;
  }

  return {
    /** @param {{type?: string, id?: number}} message */
    handle(message) {
      if (message?.type === 'init') {
        if (config) return;
        config = message.config ?? {};
        started().catch(() => {}); // the calls that need the engine report it
        post({ type: 'ready' }, []);
      } else if (message?.type === 'call') {
        const id = message.id ?? 0;
        if (!config) {
          post({ type: 'error', id, message: 'Bridge worker is not initialized' }, []);
          return;
        }
        if (message.method === 'dispose' && !starting) {
          post({ type: 'result', id }, []); // the engine never came up
          return;
        }
        started().then(
          () => host?.handle(message),
          (error) => post({ type: 'error', id, message: errorText(error) }, []),
        );
      }
    },

    /** Let go of the Python host; messages that come later are dropped. */
    close() {
      closed = true;
      releaseHost();
    },
  };
}

/** Values that JSON cannot hold stand as `{"$buffer": index}` in the text. */
function messageFromText(text, buffers) {
  const count = buffers?.length ?? 0;
  if (!count) return { message: JSON.parse(text), transfer: [] };
  const message = JSON.parse(text, (_, value) => (value?.$buffer === undefined ? value : buffers[value.$buffer]));
  const transfer = [...new Set(Array.from(buffers, ({ buffer }) => buffer))];
  return { message, transfer: transfer.filter((buffer) => buffer instanceof ArrayBuffer) };
}

function coreInitMs({ coreInitTimeoutMs: ms }) {
  if (!(Number.isFinite(ms) && ms > 0)) return DEFAULT_CORE_INIT_MS;
  const [least, most] = CORE_INIT_RANGE_MS;
  return Math.min(Math.max(Math.trunc(ms), least), most);
}

function withinMs(promise, ms) {
  let timer;
  const timeout = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`Bridge core init timeout (${ms}ms)`)), ms);
  });
  return Promise.race([promise, timeout]).finally(() => clearTimeout(timer));
}
