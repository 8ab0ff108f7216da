import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';

import { DEFAULT_CACHE_NAME } from '../../web/bridge/model_cache.js';
import { PieceSums, XxHash32 } from '../../web/bridge/content_sum.js';
import { openModel } from '../../web/bridge/model_files.js';
import { concatenated, installFakeCaches } from './fake_caches.mjs';
import { FakeWorker, LOADED, bridgeWithFakes, installFakeWorker, loadedBridge, outcome, settled } from './fake_worker.mjs';

installFakeWorker();

const BASE = 'https://models.test/';
const CHUNK = 1000;
const bytesOf = (length, seed) => Uint8Array.from({ length }, (_, i) => (i * 7 + seed) % 251);

/** Files by path; `answers` overrides an answer: {path: (request number) => Response | Error}. */
let files;
let answers;
let requests;
let caches;

beforeEach(() => {
  FakeWorker.reset();
  caches = installFakeCaches();
  files = { 'm.gguf': bytesOf(10_500, 1) };
  answers = {};
  requests = [];
});

globalThis.fetch = async (url, init = {}) => {
  init.signal?.throwIfAborted();
  const path = String(url).replace(BASE, '');
  requests.push([path, init.cache ?? null]);
  const special = answers[path]?.(requests.filter(([asked]) => asked === path).length);
  if (special instanceof Error) throw special;
  if (special) return special;
  const file = files[path];
  if (!file) return new Response('nothing', { status: 404, statusText: 'Not Found' });
  return new Response(chunked(file), { headers: { 'Content-Length': String(file.length), ETag: '"v1"' } });
};

function chunked(file) {
  let at = 0;
  return new ReadableStream({
    pull(controller) {
      if (at >= file.length) controller.close();
      else controller.enqueue(file.slice(at, (at += CHUNK)));
    },
  });
}

async function received(chunks) {
  const parts = [];
  for await (const chunk of chunks) parts.push(chunk);
  return concatenated(parts);
}

const url = (path) => BASE + path;
const entries = (name = DEFAULT_CACHE_NAME) => caches.caches.get(name)?.entries ?? new Map();

/** Loads the way the engine does: the front, then all of it but what lies behind the last tensor. */
async function load(paths, options = {}, tail = 300) {
  const source = await openModel([paths].flat().map(url), options);
  try {
    const front = await source.read(0, 100);
    const body = await received(source.stream(0, source.size() - tail));
    assert.deepEqual(front, body.slice(0, 100));
    await source.commit();
    return { body, ...JSON.parse(source.facts()) };
  } finally {
    source.close();
  }
}

test('one pass feeds the engine and the cache, also what the engine does not read; the next load asks for nothing', async () => {
  const first = await load('m.gguf');
  assert.deepEqual([first.source, first.state, first.name], ['network', 'stored', DEFAULT_CACHE_NAME]);
  assert.deepEqual(first.notes, ['model_network_stream', 'model_cache_stored']);
  const entry = entries().get(url('m.gguf'));
  assert.deepEqual(new Uint8Array(entry.body), files['m.gguf']);
  assert.deepEqual([entry.headers.get('content-length'), entry.headers.get('etag')], ['10500', '"v1"']);
  const second = await load('m.gguf');
  assert.deepEqual([second.source, second.state], ['cache', 'hit']);
  assert.deepEqual(second.notes, ['model_cache_hit', 'model_cache_stream']);
  assert.deepEqual(second.body, first.body);
  assert.deepEqual(requests, [['m.gguf', null]]);
});

test('a load that is given up before the model is there keeps nothing, and what was there stays', async () => {
  const source = await openModel([url('m.gguf')], {});
  await source.read(0, 5000);
  source.close();
  await settled();
  assert.equal(entries().size, 0);
  await load('m.gguf');
  const again = await openModel([url('m.gguf')], { force: true });
  await received(again.stream(0));
  again.close();
  assert.deepEqual(new Uint8Array(entries().get(url('m.gguf')).body), files['m.gguf']);
});

test('force fetches past every cache and replaces the entry; useCache false leaves no trace', async () => {
  await load('m.gguf');
  files['m.gguf'] = bytesOf(9_000, 5);
  const refreshed = await load('m.gguf', { force: true });
  assert.deepEqual(refreshed.state, 'stored');
  assert.equal(entries().get(url('m.gguf')).body.length, 9_000);
  const without = await load('m.gguf', { useCache: false });
  assert.deepEqual([without.source, without.state], ['network', 'disabled']);
  assert.deepEqual(requests.map(([, cache]) => cache), [null, 'reload', 'no-store']);
});

test('a full disk costs the entry, not the load', async () => {
  caches.quota = { after: 4_000 };
  const loaded = await load('m.gguf');
  assert.deepEqual(loaded.body.length, 10_200);
  assert.equal(loaded.state, 'store_failed');
  assert.deepEqual(loaded.notes.slice(1), ['model_cache_store_failed', 'model_cache_quota_exceeded']);
  assert.equal(entries().size, 0);
});

test('no Cache Storage, and one that fails: the network serves', async () => {
  for (const broken of ['open', 'match']) {
    caches.broken = broken;
    const loaded = await load('m.gguf');
    assert.deepEqual([loaded.source, loaded.state, loaded.notes[0]], ['network', 'error', 'model_cache_error']);
  }
  caches.broken = 'put';
  assert.equal((await load('m.gguf')).state, 'store_failed');
  globalThis.caches = undefined;
  assert.deepEqual((await load('m.gguf')).state, 'unavailable');
});

test('entries that cannot be a model are dropped on open', async () => {
  const cache = await caches.open(DEFAULT_CACHE_NAME);
  for (const [body, init] of [
    ['<!doctype html>', { headers: { 'content-type': 'text/html; charset=utf-8' } }],
    ['missing', { status: 404 }],
    ['', { headers: { 'content-length': '0' } }],
  ]) {
    await cache.put(url('m.gguf'), new Response(body, init));
    const loaded = await load('m.gguf');
    assert.deepEqual([loaded.source, loaded.state, loaded.notes[0]], ['network', 'stored', 'model_cache_entry_dropped']);
  }
});

test('an entry that is shorter than it says fails where it ends, and can be discarded', async () => {
  await load('m.gguf');
  const entry = entries().get(url('m.gguf'));
  entry.body = entry.body.subarray(0, 6_000);
  const source = await openModel([url('m.gguf')], {});
  await assert.rejects(received(source.stream(0)), { code: 'SHORT_BODY' });
  assert.equal(JSON.parse(source.facts()).anyFromCache, true);
  await source.discard();
  source.close();
  assert.equal(entries().size, 0);
});

const DAMAGED = { code: 'CACHE_DAMAGED', message: /^the cached file is damaged before byte \d+: its checksum does not match$/ };

test('a byte that changed in an entry is noticed, wherever it lies', async () => {
  for (const at of [0, 5_000, 10_400, 10_499]) {
    await load('m.gguf', { force: true });
    entries().get(url('m.gguf')).body[at] ^= 4;
    const source = await openModel([url('m.gguf')], {});
    await received(source.stream(0, 10_200));
    await assert.rejects(source.checksum(), DAMAGED);
    source.close();
  }
});

test('checksums belong to the entry they were taken of; one without is taken as it is and gets its own', async () => {
  const { body } = await load('m.gguf');
  const sums = () => JSON.parse(new TextDecoder().decode(entries(`${DEFAULT_CACHE_NAME}:checksums`).get(url('m.gguf')).body));
  const first = sums();
  assert.deepEqual(first.sums, [xxHash32(files['m.gguf'])]);
  const entry = entries().get(url('m.gguf'));
  entry.headers.set('x-bridge-stored-at', '2020-01-01T00:00:00.000Z'); // written by another load, whose checksums were lost
  entry.body[5_000] ^= 4;
  assert.notDeepEqual((await load('m.gguf')).body, body);
  assert.equal(sums().storedAt, '2020-01-01T00:00:00.000Z');
  entry.body[6_000] ^= 4;
  const source = await openModel([url('m.gguf')], {});
  await assert.rejects(source.checksum(), DAMAGED);
  await source.discard();
  source.close();
  assert.deepEqual([entries().size, entries(`${DEFAULT_CACHE_NAME}:checksums`).size], [0, 0]);
});

function xxHash32(bytes) {
  const hash = new XxHash32();
  hash.update(bytes);
  return hash.digest().toString(16).padStart(8, '0');
}

test('xxHash32 has the values of its specification, however the bytes are cut', () => {
  const text = (words) => new TextEncoder().encode(words);
  const told = { '': '02cc5d05', abc: '32d153ff', 'Hello, world!': '31b7405d', 'I want an unsigned 32-bit seed!': 'f7a35af8' };
  for (const [words, sum] of Object.entries(told)) assert.equal(xxHash32(text(words)), sum);
  const bytes = bytesOf(1_000, 3);
  for (const step of [1, 3, 16, 17, 333]) {
    const hash = new XxHash32();
    for (let at = 0; at < bytes.length; at += step) hash.update(bytes.subarray(at, at + step));
    assert.equal(hash.digest().toString(16).padStart(8, '0'), xxHash32(bytes));
  }
});

test('the checksums of pieces say where a file differs, and that it ended early', () => {
  const bytes = bytesOf(1_000, 3);
  const sums = new PieceSums(null, 300);
  for (let at = 0; at < bytes.length; at += 77) sums.feed(bytes.subarray(at, at + 77));
  const expected = sums.finish();
  assert.equal(expected.length, 4);
  assert.deepEqual(sums.finish(), expected);
  const other = bytes.slice();
  other[350] ^= 1;
  const checking = new PieceSums(expected, 300);
  checking.feed(other.subarray(0, 599));
  assert.throws(() => checking.feed(other.subarray(599)), { code: 'CACHE_DAMAGED', message: /before byte 600/ });
  const short = new PieceSums(expected, 300);
  short.feed(bytes.subarray(0, 900));
  assert.throws(() => short.finish(), { code: 'CACHE_DAMAGED' });
});

test('addresses that Cache Storage does not take are fetched', async () => {
  const blob = URL.createObjectURL(new Blob([files['m.gguf']]));
  answers[blob] = () => new Response(chunked(files['m.gguf']), { headers: { 'Content-Length': '10500' } });
  const source = await openModel([blob], {});
  assert.equal((await received(source.stream(0))).length, 10_500);
  assert.equal(JSON.parse(source.facts()).state, 'disabled');
  source.close();
});

const SHARDS = ['s-00001-of-00003.gguf', 's-00002-of-00003.gguf', 's-00003-of-00003.gguf'];

function addShards() {
  SHARDS.forEach((name, i) => (files[name] = bytesOf(300_000 + 7 * i, i)));
  return concatenated(SHARDS.map((name) => files[name]));
}

test('a split model is one source over its files, stored file by file and then served without the network', async () => {
  const all = addShards();
  const first = await load(SHARDS, {}, 0);
  assert.deepEqual(first.body, all);
  assert.deepEqual([first.state, first.notes[0]], ['stored', 'model_split_detected:3']);
  assert.deepEqual([...entries().keys()], SHARDS.map(url));
  const asked = requests.length;
  const second = await load(SHARDS, {}, 0);
  assert.deepEqual(second.body, all);
  assert.deepEqual([second.source, second.state, requests.length], ['cache', 'hit', asked]);
});

test('while headers of a split model are read no connection stays open', async () => {
  addShards();
  let open = 0;
  for (const name of SHARDS) {
    answers[name] = () => {
      open += 1;
      let at = 0;
      const body = new ReadableStream({
        pull(controller) {
          if (at < files[name].length) controller.enqueue(files[name].slice(at, (at += CHUNK)));
          else controller.close();
        },
        cancel() {
          open -= 1;
        },
      });
      return new Response(body, { headers: { 'Content-Length': String(files[name].length), ETag: '"v1"' } });
    };
  }
  const source = await openModel(SHARDS.map(url), { useCache: false });
  for (const start of [0, 300_000, 600_007]) await source.read(start, 200);
  assert.equal(open, 0);
  const all = concatenated(SHARDS.map((name) => files[name]));
  assert.deepEqual(await source.read(300_100, 270_000), all.subarray(300_100, 570_100));
  source.close();
});

test('a shard that changed after its header was read is refused; a missing one is named', async () => {
  addShards();
  answers[SHARDS[1]] = (n) =>
    n > 1 && new Response(chunked(files[SHARDS[1]]), { headers: { 'Content-Length': '300007', ETag: '"v2"' } });
  const source = await openModel(SHARDS.map(url), { useCache: false });
  await assert.rejects(received(source.stream(0)), { code: 'FILE_CHANGED', message: /^shard 2 of 3: the file changed/ });
  source.close();
  delete files[SHARDS[2]];
  await assert.rejects(openModel(SHARDS.map(url), {}), { code: 'HTTP_STATUS', message: 'shard 3 of 3: 404 Not Found' });
});

test('a shard whose cached front is cut off is fetched anew', async () => {
  const all = addShards();
  await load(SHARDS, {}, 0);
  const entry = entries().get(url(SHARDS[1]));
  entry.body = entry.body.subarray(0, 50);
  const loaded = await load(SHARDS, {}, 0);
  assert.deepEqual(loaded.body, all);
  assert.equal(entries().get(url(SHARDS[1])).body.length, 300_007);
});

// The page's own calls

const direct = (config = {}) => bridgeWithFakes({ disableWorker: true, ...config }).bridge;
const fact = (bridge, key) => bridge.getModelMetadata()[`llamadart.webgpu.${key}`];

test('case 60: in worker mode prefetching posts nothing and changes no metadata', async () => {
  const { bridge, worker } = await loadedBridge();
  const [messages, metadata] = [worker.messages.length, bridge.getModelMetadata()];
  assert.equal(await bridge.prefetchModelToCache(url('m.gguf')), 1);
  assert.equal(await bridge.evictModelFromCache(url('m.gguf')), true);
  assert.deepEqual([worker.messages.length, bridge.getModelMetadata()], [messages, metadata]);
});

test('case 61: in direct mode they show in the metadata, and the model does not', async () => {
  const { bridge, direct: ports } = bridgeWithFakes({ disableWorker: true });
  const loading = bridge.loadModelFromUrl('m');
  await settled();
  ports[0].result(1, 1, LOADED);
  await loading;
  const progress = [];
  await bridge.prefetchModelToCache(url('m.gguf'), { progressCallback: (p) => progress.push(p) });
  assert.deepEqual(progress.at(-1), { loaded: 10_500, total: 10_500 });
  assert.ok(progress.length > 5);
  assert.deepEqual(
    [fact(bridge, 'model_source'), fact(bridge, 'model_cache_state'), fact(bridge, 'model_cache_name'), fact(bridge, 'model_bytes')],
    ['network', 'stored', DEFAULT_CACHE_NAME, LOADED.metadata['llamadart.webgpu.model_bytes']],
  );
  assert.match(fact(bridge, 'runtime_notes'), /model_cache_stored/);
  await bridge.prefetchModelToCache(url('m.gguf'));
  assert.deepEqual([fact(bridge, 'model_source'), requests.length], ['cache', 1]);
  await bridge.evictModelFromCache(url('m.gguf'));
  assert.equal(fact(bridge, 'model_cache_state'), 'evicted');
});

test('case 175: two shards of ten bytes add up to {20, 20}', async () => {
  files['t-00001-of-00002.gguf'] = bytesOf(10, 1);
  files['t-00002-of-00002.gguf'] = bytesOf(10, 2);
  const progress = [];
  await direct().prefetchModelToCache(url('t-00002-of-00002.gguf'), { progressCallback: (p) => progress.push(p) });
  assert.deepEqual(progress.at(-1), { loaded: 20, total: 20 });
  assert.deepEqual([...entries().keys()], [url('t-00001-of-00002.gguf'), url('t-00002-of-00002.gguf')]);
});

test('case 176: evicting what is there gives true, what is not false, and without Cache Storage false', async () => {
  const bridge = direct();
  assert.equal(await bridge.evictModelFromCache(url('m.gguf')), false);
  await bridge.prefetchModelToCache(url('m.gguf'));
  assert.equal(await bridge.evictModelFromCache([url('x.gguf'), url('m.gguf')]), true);
  globalThis.caches = undefined;
  assert.equal(await bridge.evictModelFromCache(url('m.gguf')), false);
});

test('case 177: a prefetch that fails says why and keeps nothing', async () => {
  const bridge = direct();
  const failure = async (...args) => (await outcome(bridge.prefetchModelToCache(...args)))[1].message;
  assert.equal(await failure(url('none.gguf')), 'Failed to prefetch model shard: 404 Not Found');
  assert.equal(await failure(''), 'Model URL is empty.');
  assert.equal(await failure([]), 'Model URL is empty.');
  caches.quota = { after: 100 };
  assert.equal(await failure(url('m.gguf')), 'Failed to store prefetched model in browser cache.');
  globalThis.caches = undefined;
  assert.match(await failure(url('m.gguf')), /^Failed to store prefetched model in browser cache\. .*no Cache Storage/);
});

test('case 178: the cacheName of a call goes before the bridge’s', async () => {
  const bridge = direct({ cacheName: 'mine' });
  await bridge.prefetchModelToCache(url('m.gguf'));
  assert.deepEqual([...caches.caches.keys()], ['mine', 'mine:checksums']);
  await bridge.prefetchModelToCache(url('m.gguf'), { cacheName: ' other ' });
  assert.equal(entries('other').size, 1);
  assert.equal(await bridge.evictModelFromCache(url('m.gguf'), { cacheName: 'other' }), true);
  assert.equal(entries('mine').size, 1);
});

test('a prefetch ends with its signal, with cancel() and with the bridge', async () => {
  answers['m.gguf'] = () => new Response(new ReadableStream({}), { headers: { 'Content-Length': '10500' } });
  let asked = 0;
  const stops = [
    [(bridge, controller) => controller.abort(), 'model_cache_prefetch_aborted'],
    [(bridge) => bridge.cancel(), 'model_cache_prefetch_aborted'],
    [(bridge) => bridge.dispose(), undefined], // nothing is known any more
  ];
  for (const [stop, note] of stops) {
    const bridge = direct();
    const controller = new AbortController();
    const prefetch = outcome(bridge.prefetchModelToCache(url('m.gguf'), { signal: controller.signal }));
    for (let i = 0; i < 20; i++) await settled();
    assert.equal(requests.length, ++asked);
    stop(bridge, controller);
    assert.equal((await prefetch)[1].name, 'AbortError');
    assert.equal(fact(bridge, 'runtime_notes'), note);
  }
  const [, early] = await outcome(direct().prefetchModelToCache(url('m.gguf'), { signal: AbortSignal.abort() }));
  assert.equal(early.name, 'AbortError');
  assert.equal(entries().size, 0);
});

test('listCache tells what is kept', async () => {
  const bridge = direct();
  assert.deepEqual(await bridge.listCache(), []);
  await bridge.prefetchModelToCache(url('m.gguf'));
  const [{ storedAt, ...entry }] = await bridge.listCache();
  assert.deepEqual(entry, { url: url('m.gguf'), bytes: 10_500, validator: '"v1"' });
  assert.ok(Date.now() - Date.parse(storedAt) < 60_000);
  const cache = await caches.open('foreign');
  await cache.put('https://e.test/x', new Response('x'));
  assert.deepEqual(await bridge.listCache({ cacheName: 'foreign' }), [
    { url: 'https://e.test/x', bytes: null, storedAt: null, validator: null },
  ]);
});

test('case 65: after dispose the cache calls are refused too', async () => {
  const bridge = direct();
  await bridge.dispose();
  for (const call of [bridge.prefetchModelToCache('m'), bridge.evictModelFromCache('m'), bridge.listCache()]) {
    assert.equal((await outcome(call))[1].message, 'Bridge has been disposed.');
  }
  assert.equal(requests.length, 0);
});
