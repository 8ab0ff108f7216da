import test from 'node:test';
import assert from 'node:assert/strict';

import { openForLoad } from '../../web/byte_source.js';
import { concatenated, countingFile, scriptedFetch } from './byte_source_scripted.mjs';

const URL_WITH_SECRET = 'https://models.example/private/model.gguf?token=secret';
const file = countingFile(1000);

/** A 200 with the whole file, as a server answers a request without Range. */
const whole = (more = {}) => ({
  status: 200, body: 'whole', chunk: 100, ...more,
  set: { 'Content-Range': null, 'Content-Length': '1000', ...more.set },
});
const rest = (more = {}) => ({ chunk: 100, ...more });

const open = (answers, options = {}) => {
  const script = scriptedFetch(file, answers);
  return { script, opened: openForLoad(URL_WITH_SECRET, { fetch: script.fetch, retryPauseMs: 1, ...options }) };
};

test('header, then everything, in one request without Range', async () => {
  const { script, opened } = open([whole()]);
  const source = await opened;
  assert.equal(source.size(), 1000);
  assert.equal(source.identity(), '"v1"');
  assert.deepEqual(await source.read(0, 50), file.slice(0, 50));
  assert.deepEqual(await source.read(20, 230), file.slice(20, 250));
  assert.equal(source.received(), 300, 'no more than the chunks needed');
  assert.deepEqual(await concatenated(source.stream(120, 300)), file.slice(120, 420));
  assert.deepEqual(await concatenated(source.stream(420)), file.slice(420), 'and on from there');
  assert.deepEqual(script.requests, [[null, null]]);
});

test('gaps between streams are let go', async () => {
  const source = await open([whole()]).opened;
  assert.deepEqual(await concatenated(source.stream(150, 10)), file.slice(150, 160));
  assert.deepEqual(await concatenated(source.stream(555, 10)), file.slice(555, 565));
});

test('it cannot go back', async () => {
  const source = await open([whole()]).opened;
  await concatenated(source.stream(0, 500));
  await assert.rejects(source.read(0, 10), { code: 'NOT_SEEKABLE' });
  await assert.rejects(concatenated(source.stream(100, 10)), { code: 'NOT_SEEKABLE', message: /at byte 500 and cannot go back to 100/ });
});

test('reads in front of the stream are bounded', async () => {
  const script = scriptedFetch(file, [whole({ set: { 'Content-Length': String(2 ** 40) } })]);
  const source = await openForLoad(URL_WITH_SECRET, { fetch: script.fetch });
  await assert.rejects(source.read(2 ** 30, 10), { code: 'NOT_SEEKABLE' });
  assert.equal(source.received(), 0);
});

test('a broken transfer goes on with Range and If-Range', async () => {
  const resumed = [];
  const { script, opened } = open([whole({ drop: 250 }), rest({ drop: 300 }), rest()], { onResume: (at) => resumed.push(at) });
  const source = await opened;
  assert.deepEqual(await source.read(0, 100), file.slice(0, 100));
  assert.deepEqual(await concatenated(source.stream()), file);
  assert.deepEqual(script.requests, [[null, null], ['bytes=250-', '"v1"'], ['bytes=550-', '"v1"']]);
  assert.equal(script.inits[1].cache, 'no-store');
  assert.deepEqual(resumed, [250, 550]);
});

test('a transfer that ends early without an error is continued too', async () => {
  const { script, opened } = open([{ ...whole(), body: [0, 400] }, rest()]);
  assert.deepEqual(await concatenated((await opened).stream()), file);
  assert.equal(script.requests[1][0], 'bytes=400-');
});

test('a failure before the first byte asks for all of it again', async () => {
  const { script, opened } = open([whole({ drop: 0 }), whole()]);
  assert.deepEqual(await concatenated((await opened).stream()), file);
  assert.deepEqual(script.requests, [[null, null], [null, null]]);
});

for (const [name, answer, message, code] of [
  ['the server ignores Range', whole(), 'Range resume not honored for model shard: 200', 'RANGE_NOT_HONOURED'],
  ['the file changed and If-Range is honoured', whole({ set: { ETag: '"v2"' } }), 'changed identity', 'FILE_CHANGED'],
  ['the file changed and If-Range is ignored', rest({ set: { ETag: '"v2"' } }), 'changed identity', 'FILE_CHANGED'],
  ['the validator is lost', rest({ set: { ETag: null } }), 'changed identity', 'FILE_CHANGED'],
  ['the file grew', rest({ set: { 'Content-Range': 'bytes 250-1999/2000' } }), 'is now 2000 bytes, was 1000', 'FILE_CHANGED'],
  ['another range comes', rest({ set: { 'Content-Range': 'bytes 0-999/1000' } }), 'returned bytes 0-999', 'BAD_RESPONSE'],
  ['Content-Range is nonsense', rest({ set: { 'Content-Range': 'all of it' } }), 'no usable Content-Range', 'BAD_RESPONSE'],
  ['the rest comes encoded', rest({ set: { 'Content-Encoding': 'br' } }), 'Content-Encoding: br', 'BAD_RESPONSE'],
  ['the file is gone', { status: 404, reason: 'Not Found', body: '' }, 'Range resume not honored for model shard: 404 Not Found', 'RANGE_NOT_HONOURED'],
]) {
  test(`on resuming, ${name}`, async () => {
    const { script, opened } = open([whole({ drop: 250 }), answer]);
    const got = [];
    await assert.rejects(async () => {
      for await (const chunk of (await opened).stream()) got.push(...chunk);
    }, (error) => {
      assert.equal(error.code, code);
      assert.ok(error.message.includes(message), error.message);
      assert.ok(!error.message.includes('example'));
      return true;
    });
    assert.deepEqual(Uint8Array.from(got), file.slice(0, 250), 'nothing wrong was handed out');
    assert.equal(script.requests.length, 2);
  });
}

test('where CORS hides Content-Range the length of the rest is proof enough', async () => {
  const { opened } = open([whole({ drop: 250 }), rest({ set: { 'Content-Range': null, 'Content-Length': '750' } })]);
  assert.deepEqual(await concatenated((await opened).stream()), file);
  const wrong = open([whole({ drop: 250 }), rest({ set: { 'Content-Range': null, 'Content-Length': '751' } })]).opened;
  await assert.rejects(async () => concatenated((await wrong).stream()), { code: 'BAD_RESPONSE' });
});

test('a server that is busy while resuming is asked again', async () => {
  const busy = { status: 503, reason: 'Service Unavailable', set: { 'Retry-After': '0' }, body: '' };
  const { script, opened } = open([whole({ drop: 250 }), busy, rest()]);
  assert.deepEqual(await concatenated((await opened).stream()), file);
  assert.equal(script.requests.length, 3);
});

test('retries are counted', async () => {
  const { script, opened } = open([whole({ drop: 10 }), rest({ drop: 10 })], { retries: 3 });
  await assert.rejects(async () => concatenated((await opened).stream()), { code: 'NETWORK' });
  assert.equal(script.requests.length, 4);
});

for (const [status, reason] of [[404, 'Not Found'], [403, 'Forbidden'], [500, 'Internal Server Error']]) {
  test(`${status} at the start`, async () => {
    const { script, opened } = open([{ status, reason, body: '<html>' }]);
    await assert.rejects(opened, { message: `${status} ${reason}`, code: 'HTTP_STATUS', status });
    assert.equal(script.requests.length, 1);
  });
}

test('a server that does not say how long the file is', async () => {
  const source = await open([whole({ set: { 'Content-Length': null } })]).opened;
  assert.equal(source.size(), null);
  assert.deepEqual(await source.read(0, 10), file.slice(0, 10));
  assert.deepEqual(await source.read(990, 50), file.slice(990), 'a read across the end comes back short');
  assert.equal(source.size(), 1000);
  assert.deepEqual(await concatenated(source.stream(5)), file.slice(5));
});

test('an encoded answer is read as decoded, its length not believed, and never continued', async () => {
  const source = await open([whole({ set: { 'Content-Encoding': 'gzip', 'Content-Length': '77' } })]).opened;
  assert.equal(source.size(), null);
  assert.deepEqual(await concatenated(source.stream()), file);
  const broken = await open([whole({ drop: 250, set: { 'Content-Encoding': 'gzip' } }), rest()]).opened;
  await assert.rejects(concatenated(broken.stream()), /encoded answer cannot be continued/);
});

test('more bytes than Content-Length says', async () => {
  for (const length of ['400', '350']) {
    const source = await open([whole({ set: { 'Content-Length': length } })]).opened;
    await assert.rejects(concatenated(source.stream()), { code: 'BAD_RESPONSE', message: new RegExp(`more than the ${length} bytes`) });
  }
});

test('abort while streaming', async () => {
  const controller = new AbortController();
  const { opened } = open([whole({ drop: 300, stall: true })], { signal: controller.signal });
  const got = [];
  await assert.rejects(async () => {
    for await (const chunk of (await opened).stream()) {
      got.push(...chunk);
      if (got.length === 300) setTimeout(() => controller.abort(), 5);
    }
  }, { name: 'AbortError' });
  assert.equal(got.length, 300);
});

test('abort does not wait for a body that ignores the signal', async () => {
  const controller = new AbortController();
  const silent = new ReadableStream({ pull: () => new Promise(() => {}) });
  const fetch = async () => new Response(silent, { headers: { 'Content-Length': '500' } });
  const source = await openForLoad('https://models.example/m', { fetch, signal: controller.signal });
  setTimeout(() => controller.abort(), 5);
  await assert.rejects(source.read(0, 10), { name: 'AbortError' });
});

test('abort before the answer', async () => {
  await assert.rejects(open([whole()], { signal: AbortSignal.abort() }).opened, { name: 'AbortError' });
});

test('closing stops the download', async () => {
  const { script, opened } = open([whole()]);
  const source = await opened;
  await source.read(0, 10);
  source.close();
  assert.ok(script.inits[0].signal.aborted);
  await assert.rejects(source.read(500, 10), { code: 'CLOSED' });
  await assert.rejects(concatenated(source.stream()), { code: 'CLOSED' });
});

test('at most one chunk is held while streaming', async () => {
  const produced = { chunks: 0 };
  const body = new ReadableStream({
    pull(controller) {
      produced.chunks += 1;
      if (produced.chunks > 50) controller.close();
      else controller.enqueue(new Uint8Array(10));
    },
  }, { highWaterMark: 0 });
  const fetch = async () => new Response(body, { headers: { 'Content-Length': '500' } });
  const source = await openForLoad('https://models.example/m', { fetch });
  let consumed = 0;
  for await (const _ of source.stream()) {
    consumed += 1;
    assert.ok(produced.chunks - consumed <= 1, `${produced.chunks} produced, ${consumed} consumed`);
  }
});

test('a connection that fails after the last byte has failed nobody', async () => {
  const { script, opened } = open([whole({ drop: 1000 })]);
  assert.deepEqual(await concatenated((await opened).stream()), file);
  assert.equal(script.requests.length, 1);
});
