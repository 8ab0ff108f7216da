import test from 'node:test';
import assert from 'node:assert/strict';

import { fromBytes, fromURL, joinSources, openForLoad, shardURLs } from '../../web/byte_source.js';
import { concatenated, countingFile, scriptedFetch } from './byte_source_scripted.mjs';

const file = countingFile(1000);
const cuts = [0, 300, 301, 1000];
const parts = cuts.slice(1).map((end, i) => file.slice(cuts[i], end));

for (const [url, expected] of [
  ['https://h/m-00002-of-00003.gguf', ['https://h/m-00001-of-00003.gguf', 'https://h/m-00002-of-00003.gguf', 'https://h/m-00003-of-00003.gguf']],
  ['m-0001-of-00002.GGUF', ['m-00001-of-00002.gguf', 'm-00002-of-00002.gguf']],
  ['/a-0002-of-0002.gguf?x=-0009-of-0009.gguf#f', ['/a-0001-of-0002.gguf?x=-0009-of-0009.gguf#f', '/a-0002-of-0002.gguf?x=-0009-of-0009.gguf#f']],
  ['m-00001-of-00001.gguf', null],
  ['m-00000-of-00002.gguf', null],
  ['m-00003-of-00002.gguf', null],
  ['m-00001-of-00513.gguf', null],
  ['m-001-of-002.gguf', null],
  ['m-0000001-of-0000002.gguf', null],
  ['m-00001-of-00002.gguf.part', null],
  ['model.gguf?file=m-00001-of-00002.gguf', null],
]) {
  test(`the files of ${url}`, () => assert.deepEqual(shardURLs(url), expected ?? [url]));
}

test('a set of 512 is the largest', () => {
  const urls = shardURLs('m-00007-of-00512.gguf');
  assert.equal(urls.length, 512);
  assert.equal(urls[511], 'm-00512-of-00512.gguf');
});

test('any range of the set, wherever the files are cut', async () => {
  const source = joinSources(parts.map(fromBytes));
  assert.equal(source.size(), null);
  assert.equal(source.shards(), null);
  await source.prepare();
  assert.equal(source.size(), 1000);
  assert.deepEqual(source.shards(), [300, 1, 699]);
  for (const [offset, length] of [[0, 1000], [299, 3], [300, 1], [301, 10], [999, 1], [1000, 0], [0, 0], [300, 0]]) {
    assert.deepEqual(await source.read(offset, length), file.slice(offset, offset + length), `${offset}, ${length}`);
    assert.deepEqual(await concatenated(source.stream(offset, length)), file.slice(offset, offset + length));
  }
  assert.deepEqual(await concatenated(source.stream()), file);
});

/** A fetch for URLs that end in the number of the file they name; `answers[i]` script that file. */
function shardFetch(answers = []) {
  const scripts = parts.map((part, i) => scriptedFetch(part, answers[i] ?? ['good']));
  return { scripts, fetch: (url, init) => scripts[Number(url.at(-1))].fetch(url, init) };
}

test('identities are joined; without one of them there is none', async () => {
  const { fetch } = shardFetch([, , [{ set: { ETag: '"other"' } }]]);
  const source = joinSources([0, 1, 2].map((i) => fromURL(`https://h/${i}`, { fetch })));
  await source.prepare();
  assert.equal(source.identity(), '"v1" "v1" "other"');
  const mixed = joinSources([fromURL('https://h/0', { fetch }), fromBytes(parts[1])]);
  await mixed.prepare();
  assert.equal(mixed.identity(), null);
});

test('a read asks only the file that has the bytes', async () => {
  const { fetch, scripts } = shardFetch();
  const source = joinSources([0, 1, 2].map((i) => fromURL(`https://h/${i}`, { fetch })));
  assert.deepEqual(await source.read(400, 10), file.slice(400, 410));
  assert.deepEqual(scripts.map(({ requests }) => requests.length), [1, 1, 2]);
  assert.equal(scripts[2].requests[1][0], 'bytes=99-108');
});

test('errors say which file failed, and keep code and status', async () => {
  const { fetch } = shardFetch([, [{ status: 404, reason: 'Not Found', body: '' }]]);
  const source = joinSources([0, 1, 2].map((i) => fromURL(`https://h/${i}`, { fetch })));
  await assert.rejects(source.prepare(), { code: 'HTTP_STATUS', status: 404, message: 'shard 2 of 3: 404 Not Found' });
  const changed = shardFetch([, , ['good', { set: { ETag: '"v2"' } }]]).fetch;
  const later = joinSources([0, 1, 2].map((i) => fromURL(`https://h/${i}`, { fetch: changed })));
  await assert.rejects(later.read(0, 1000), { code: 'FILE_CHANGED', message: /^shard 3 of 3: the file changed identity/ });
  await assert.rejects(later.read(999, 2), { code: 'INVALID_RANGE', message: 'bytes 999-1000 are past the end of a 1000-byte file' });
});

test('one pass over files that are opened for loading', async () => {
  const answer = (part) => [{ status: 200, body: 'whole', chunk: 50, set: { 'Content-Range': null, 'Content-Length': String(part.length) } }];
  const { fetch, scripts } = shardFetch(parts.map(answer));
  const source = joinSources(await Promise.all([0, 1, 2].map((i) => openForLoad(`https://h/${i}`, { fetch }))));
  assert.deepEqual(await source.read(0, 20), file.slice(0, 20));
  assert.deepEqual(await source.read(301, 20), file.slice(301, 321), 'the header of a later file');
  assert.equal(source.received(), 100);
  assert.deepEqual(await concatenated(source.stream(100, 500)), file.slice(100, 600));
  assert.deepEqual(await concatenated(source.stream(600)), file.slice(600));
  assert.equal(source.received(), 1000);
  assert.deepEqual(scripts.map(({ requests }) => requests.length), [1, 1, 1]);
});

test('a file that does not say how long it is cannot be joined', async () => {
  const answers = [[{ status: 200, body: 'whole', set: { 'Content-Range': null } }]];
  const opened = await openForLoad('https://h/0', { fetch: shardFetch(answers).fetch });
  await assert.rejects(joinSources([opened, fromBytes(parts[1])]).prepare(), { message: 'shard 1 of 2 does not say how long it is' });
});

test('leaving a stream early, and closing, reach the files', async () => {
  const returned = [];
  const endless = (name) => ({
    size: () => 10,
    async *stream() {
      try {
        for (;;) yield new Uint8Array(1);
      } finally {
        returned.push(name);
      }
    },
    close: () => returned.push(`closed ${name}`),
  });
  const source = joinSources([endless('a'), endless('b')]);
  for await (const _ of source.stream()) break;
  source.close();
  assert.deepEqual(returned, ['a', 'closed a', 'closed b']);
});

test('an aborted read rejects with the reason', async () => {
  const signal = AbortSignal.abort();
  await assert.rejects(joinSources(parts.map(fromBytes)).read(0, 4, { signal }), { name: 'AbortError' });
});

test('no files', () => assert.throws(() => joinSources([]), /at least one file, got none/));
