import test from 'node:test';
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';

import { ByteSourceError, fromURL } from '../../web/byte_source.js';
import { concatenated, countingFile, scriptedFetch } from './byte_source_scripted.mjs';

const { cases } = JSON.parse(readFileSync(new URL('../gguf/http_cases.json', import.meta.url), 'utf8'));
const URL_WITH_SECRET = 'https://models.example/private/model.gguf?token=secret';

for (const shared of cases) {
  test(`shared case: ${shared.name}`, async () => {
    const file = countingFile(shared.size ?? 512);
    const { fetch, requests, inits } = scriptedFetch(file, shared.answers);
    const source = fromURL(URL_WITH_SECRET, { fetch, allowUnvalidated: shared.allow_unvalidated, retryPauseMs: 1 });
    const got = [];
    let failure = null;
    let failedAt = 0;
    try {
      await source.prepare();
      for (const [offset, length] of shared.reads ?? []) {
        failedAt += 1;
        got.push(await source.read(offset, length));
      }
    } catch (error) {
      failure = error;
    }
    if ('error' in shared) {
      assert.ok(failure instanceof ByteSourceError, `it should have failed with a ByteSourceError, got ${failure}`);
      assert.ok(failure.message.includes(shared.error), failure.message);
      assert.equal(failedAt, shared.fails_at);
      assert.ok(!/example|secret|:\/\//.test(failure.message), failure.message);
      if ('status' in shared) assert.equal(failure.status, shared.status);
    } else {
      assert.equal(failure, null);
      assert.deepEqual(got, (shared.reads ?? []).map(([offset, length]) => file.slice(offset, offset + length)));
      assert.equal(source.size(), file.length);
    }
    assert.ok(inits.every(({ method = 'GET' }) => method === 'GET'));
    if ('identity' in shared) assert.equal(source.identity(), shared.identity);
    if ('requests' in shared) assert.deepEqual(requests, shared.requests);
  });
}

test('a status error is exactly status and reason', async () => {
  const { fetch } = scriptedFetch(countingFile(16), [{ status: 404, reason: 'Not Found', body: '' }]);
  await assert.rejects(fromURL(URL_WITH_SECRET, { fetch }).prepare(), { message: '404 Not Found', code: 'HTTP_STATUS', status: 404 });
});

test('two reads at once prepare once', async () => {
  const file = countingFile(512);
  const { fetch, requests } = scriptedFetch(file, ['good']);
  const source = fromURL(URL_WITH_SECRET, { fetch });
  assert.equal(source.size(), null);
  const [a, b] = await Promise.all([source.read(0, 4), source.read(508, 4)]);
  assert.deepEqual([...a, ...b], [0, 1, 2, 3, 252, 253, 254, 255]);
  assert.deepEqual(requests.map(([range]) => range), ['bytes=0-0', 'bytes=0-3', 'bytes=508-511']);
});

test('a failed open can be tried again', async () => {
  const { fetch } = scriptedFetch(countingFile(16), [{ status: 403, body: '' }, 'good']);
  const source = fromURL(URL_WITH_SECRET, { fetch });
  await assert.rejects(source.prepare(), { code: 'HTTP_STATUS' });
  assert.deepEqual([...(await source.read(2, 2))], [2, 3]);
});

test('stream gives the range as it arrives, with one request', async () => {
  const file = countingFile(512);
  const { fetch, requests } = scriptedFetch(file, ['good', { chunk: 100 }]);
  const source = fromURL(URL_WITH_SECRET, { fetch });
  const sizes = [];
  for await (const chunk of source.stream(100, 250)) sizes.push(chunk.length);
  assert.deepEqual(sizes, [100, 100, 50]);
  assert.equal(requests.length, 2);
});

test('leaving a stream early cancels the download', async () => {
  let cancelled = false;
  const endless = new ReadableStream({
    pull: (controller) => controller.enqueue(new Uint8Array(8)),
    cancel: () => { cancelled = true; },
  });
  let calls = 0;
  const fetch = async () => {
    calls += 1;
    const headers = { 'Content-Range': calls === 1 ? 'bytes 0-0/1000' : 'bytes 0-999/1000', ETag: '"v1"' };
    return new Response(calls === 1 ? new Uint8Array(1) : endless, { status: 206, headers });
  };
  for await (const chunk of fromURL('https://models.example/m', { fetch }).stream(0, 1000)) {
    assert.equal(chunk.length, 8);
    break;
  }
  assert.ok(cancelled);
});

test('an answer to a server without Range is not downloaded', async () => {
  let cancelled = false;
  const body = new ReadableStream({ pull: (c) => c.enqueue(new Uint8Array(1024)), cancel: () => { cancelled = true; } });
  const fetch = async () => new Response(body, { status: 200, headers: { ETag: '"v1"' } });
  await assert.rejects(fromURL('https://models.example/m', { fetch }).prepare(), { code: 'RANGE_NOT_HONOURED' });
  assert.ok(cancelled);
});

test('aborting one read leaves the source usable', async () => {
  const file = countingFile(512);
  const { fetch } = scriptedFetch(file, ['good', { chunk: 10, drop: 20, stall: true }, 'good']);
  const source = fromURL(URL_WITH_SECRET, { fetch });
  const controller = new AbortController();
  const read = source.read(0, 100, { signal: controller.signal });
  setTimeout(() => controller.abort(), 20);
  await assert.rejects(read, { name: 'AbortError' });
  assert.deepEqual(await source.read(0, 5), file.slice(0, 5));
});

test('the signal of the source stops everything', async () => {
  const { fetch } = scriptedFetch(countingFile(512), ['good']);
  const source = fromURL(URL_WITH_SECRET, { fetch, signal: AbortSignal.abort(new Error('stopped by the page')) });
  await assert.rejects(source.read(0, 5), /stopped by the page/);
});

test('a closed source reads no more', async () => {
  const { fetch, requests } = scriptedFetch(countingFile(512), ['good']);
  const source = fromURL(URL_WITH_SECRET, { fetch });
  await source.prepare();
  source.close();
  await assert.rejects(source.read(0, 5), { code: 'CLOSED' });
  assert.equal(requests.length, 1);
});

test('a stalled body is asked for again', async () => {
  const file = countingFile(512);
  const { fetch, requests } = scriptedFetch(file, ['good', { drop: 30, stall: true }, 'good']);
  const source = fromURL(URL_WITH_SECRET, { fetch, streamChunkTimeoutMs: 20, retryPauseMs: 1 });
  assert.deepEqual(await source.read(0, 100), file.slice(0, 100));
  assert.equal(requests.at(-1)[0], 'bytes=30-99');
});

test('headers that never come are a timeout', async () => {
  const signals = [];
  const fetch = (_, { signal }) => {
    signals.push(signal);
    return new Promise(() => {});
  };
  const source = fromURL('https://models.example/m', { fetch, fetchTimeoutMs: 5, retries: 1, retryPauseMs: 1 });
  await assert.rejects(source.prepare(), { code: 'TIMEOUT', message: 'fetch timeout (5ms)' });
  assert.deepEqual(signals.map((signal) => signal.aborted), [true, true]);
});

test('network failures are tried again, and tell no address', async () => {
  let calls = 0;
  const fetch = async (url) => {
    calls += 1;
    throw new TypeError(`cannot reach ${url}`);
  };
  await assert.rejects(fromURL(URL_WITH_SECRET, { fetch, retries: 2, retryPauseMs: 1 }).prepare(), (error) => {
    assert.equal(error.code, 'NETWORK');
    assert.ok(!error.message.includes('example'));
    return true;
  });
  assert.equal(calls, 3);
});

test('answers without a body stream are read whole', async () => {
  const file = countingFile(64);
  const fetch = async (_, { headers }) => {
    const [, from, to] = /bytes=(\d+)-(\d+)/.exec(headers.Range).map(Number);
    const shown = { 'content-range': `bytes ${from}-${to}/64`, etag: '"v1"' };
    return {
      status: 206,
      headers: { get: (name) => shown[name.toLowerCase()] ?? null },
      arrayBuffer: async () => file.slice(from, to + 1).buffer,
    };
  };
  assert.deepEqual(await fromURL('https://models.example/m', { fetch }).read(3, 5), file.slice(3, 8));
});

test('offsets that are no exact integers are refused before anything is fetched', async () => {
  const { fetch, requests } = scriptedFetch(countingFile(512), ['good']);
  const source = fromURL(URL_WITH_SECRET, { fetch });
  await source.prepare();
  for (const [offset, length] of [[-1, 1], [0.5, 1], [2 ** 53, 1], [0, Number.NaN], [0, -1], ['0', 1], [1, 2 ** 53 - 1]]) {
    await assert.rejects(source.read(offset, length), { code: 'INVALID_RANGE' }, `${offset}, ${length}`);
  }
  assert.equal(requests.length, 1);
});

test('the default fetch is called as the global function it is', async () => {
  const file = countingFile(64);
  const { fetch } = scriptedFetch(file, ['good']);
  const original = globalThis.fetch;
  globalThis.fetch = function (...args) {
    if (this !== globalThis && this !== undefined) throw new TypeError('Illegal invocation');
    return fetch(...args);
  };
  try {
    assert.deepEqual(await concatenated(fromURL('https://models.example/m').stream()), file);
  } finally {
    globalThis.fetch = original;
  }
});

test('a connection that fails after the last byte has failed nobody', async () => {
  const file = countingFile(512);
  const { fetch, requests } = scriptedFetch(file, ['good', { drop: 16 }]);
  const source = fromURL(URL_WITH_SECRET, { fetch, retryPauseMs: 1 });
  assert.deepEqual(await source.read(0, 16), file.slice(0, 16));
  assert.equal(requests.length, 2);
});
