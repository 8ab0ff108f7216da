/** What only a real server and a real fetch can show: redirects, decoding behind fetch's back, broken sockets. */
import test from 'node:test';
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { gzipSync } from 'node:zlib';

import { fromURL } from '../../web/byte_source.js';
import { countingFile } from './byte_source_scripted.mjs';

const file = countingFile(1000);

/** Serves with `answer(request, response, {start, end, index})`; closed when the test is over. */
async function serve(t, answer) {
  const seen = [];
  const server = createServer((request, response) => {
    const [, start, end] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '').map(Number);
    seen.push({ method: request.method, url: request.url, range: request.headers.range, ifRange: request.headers['if-range'] });
    answer(request, response, { start, end, index: seen.length - 1 });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { seen, url: `http://127.0.0.1:${server.address().port}/model.gguf` };
}

function sendRange(response, { start, end }, headers = {}) {
  response.writeHead(206, {
    'Content-Range': `bytes ${start}-${end}/${file.length}`, ETag: '"v1"', 'Content-Length': end - start + 1, ...headers,
  });
  return file.subarray(start, end + 1);
}

test('every request may be redirected to a newly signed address', async (t) => {
  const store = await serve(t, (_, response, range) => response.end(sendRange(response, range)));
  const front = await serve(t, (_, response, { index }) => {
    response.writeHead(302, { Location: `${store.url}?signature=${index}` });
    response.end();
  });
  const source = fromURL(front.url);
  assert.deepEqual(await source.read(0, 4), file.slice(0, 4));
  assert.deepEqual(await source.read(900, 100), file.slice(900));
  assert.deepEqual(store.seen.map(({ url }) => url), [0, 1, 2].map((i) => `/model.gguf?signature=${i}`));
  assert.deepEqual(store.seen.at(-1), { method: 'GET', url: '/model.gguf?signature=2', range: 'bytes=900-999', ifRange: '"v1"' });
});

test('a range that the server compresses is refused, although fetch decodes it', async (t) => {
  const { url } = await serve(t, (_, response, range) => {
    if (range.index === 0) return response.end(sendRange(response, range));
    const packed = gzipSync(file.subarray(range.start, range.end + 1));
    sendRange(response, range, { 'Content-Encoding': 'gzip', 'Content-Length': packed.length });
    return response.end(packed);
  });
  await assert.rejects(fromURL(url).read(0, 500), /Content-Encoding: gzip/);
});

test('a socket that breaks is replaced, and the read goes on where it was', async (t) => {
  const { url, seen } = await serve(t, (_, response, range) => {
    const bytes = sendRange(response, range);
    if (range.index !== 1) return response.end(bytes);
    return response.write(bytes.subarray(0, 70), () => response.destroy());
  });
  assert.deepEqual(await fromURL(url, { retryPauseMs: 1 }).read(100, 200), file.slice(100, 300));
  assert.equal(seen.length, 3);
  const resumedAt = Number(/^bytes=(\d+)-299$/.exec(seen[2].range)[1]);
  assert.ok(resumedAt > 100 && resumedAt <= 170, seen[2].range);
});

test('one byte per packet', async (t) => {
  const { url } = await serve(t, async (_, response, range) => {
    const bytes = sendRange(response, range);
    response.socket.setNoDelay(true);
    for (const byte of bytes) {
      response.write(Uint8Array.of(byte));
      await new Promise(setImmediate);
    }
    response.end();
  });
  assert.deepEqual(await fromURL(url).read(5, 120), file.slice(5, 125));
});
