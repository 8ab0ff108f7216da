/**
 * The worker's end of web/gguf.js: hands calls to bridge.reader_host and asks the page for the bytes that it reads.
 *
 * From the page: {type: 'call', id, file, method, args}, and for a read {type: 'bytes', id, bytes} or {type: 'failed', id}.
 * To the page: {type: 'read', id, call, offset, length}, and for a call {type: 'reply', id, value} or {type: 'reply', id, error}.
 *
 * @param {(message: object, transfer: Transferable[]) => void} post
 * @param {() => Promise<object>} boot  gives a Pyodide that has `bridge`
 * @returns {(message: object) => void} takes the page's messages
 */
export function serveReader(post, boot) {
  const reads = new Map();
  let lastRead = 0;
  let starting = null;

  function read(call, offset, length) {
    return new Promise((resolve, reject) => {
      lastRead += 1;
      reads.set(lastRead, { resolve, reject });
      post({ type: 'read', id: lastRead, call, offset, length }, []);
    });
  }

  async function start() {
    const pyodide = await boot();
    const module = pyodide.pyimport('bridge.reader_host');
    const host = module.ReaderHost(read, (name) => loadPackage(pyodide, name), (count) => new Float32Array(count));
    module.destroy();
    return { pyodide, host };
  }

  async function answer({ id, file, method, args }) {
    starting ??= start();
    const { pyodide, host } = await starting;
    const given = pyodide.toPy(args);
    const pending = host.call(id, file, method, given);
    const reply = await pending;
    const { value, error } = reply.toJs({ dict_converter: Object.fromEntries, create_pyproxies: false });
    for (const proxy of [reply, pending, given]) proxy.destroy();
    if (error) post({ type: 'reply', id, error }, []);
    else post({ type: 'reply', id, value }, value?.buffer instanceof ArrayBuffer ? [value.buffer] : []);
  }

  return (message) => {
    if (message.type === 'call') {
      answer(message).catch(({ message: text }) => {
        post({ type: 'reply', id: message.id, error: { code: 'READER_FAILED', message: `the reader did not start: ${text}` } }, []);
      });
      return;
    }
    const waiting = reads.get(message.id);
    reads.delete(message.id);
    if (message.type === 'bytes') waiting?.resolve(message.bytes);
    else waiting?.reject(new Error('the page could not read'));
  };
}

async function loadPackage(pyodide, name) {
  if (name in pyodide.loadedPackages) return;
  let problem = '';
  await pyodide.loadPackage(name, { messageCallback: () => {}, errorCallback: (text) => (problem = text) });
  if (!(name in pyodide.loadedPackages)) throw new Error(`the Python package ${name} could not be loaded: ${problem}`);
}
