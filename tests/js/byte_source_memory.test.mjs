import test from 'node:test';
import assert from 'node:assert/strict';

import { fromBlob, fromBytes, fromURL } from '../../web/byte_source.js';
import { concatenated, countingFile } from './byte_source_scripted.mjs';

const file = countingFile(512);
const blobURLOf = (bytes) => URL.createObjectURL(new Blob([bytes]));

for (const [name, open] of [
  ['blob', () => fromBlob(new Blob([file]))],
  ['bytes', () => fromBytes(file)],
  ['blob: URL', () => fromURL(blobURLOf(file))],
  ['blob: URL where fetch does not know ranges of blobs', () => fromURL(blobURLOf(file), {
    fetch: async () => new Response(new Blob([file])),
  })],
]) {
  test(`${name}: any range, exactly`, async () => {
    const source = open();
    await source.prepare();
    assert.equal(source.size(), 512);
    assert.equal(source.identity(), null);
    assert.deepEqual(await source.read(16, 32), file.slice(16, 48));
    assert.deepEqual(await source.read(511, 1), file.slice(511));
    assert.deepEqual(await source.read(512, 0), new Uint8Array(0));
    assert.deepEqual(await concatenated(source.stream(3)), file.slice(3));
    assert.deepEqual(await concatenated(source.stream(3, 4)), file.slice(3, 7));
  });

  test(`${name}: past the end`, async () => {
    const source = open();
    await source.prepare();
    await assert.rejects(source.read(510, 3), { code: 'INVALID_RANGE', message: 'bytes 510-512 are past the end of a 512-byte file' });
    await assert.rejects(concatenated(source.stream(510, 3)), { code: 'INVALID_RANGE' });
  });

  test(`${name}: closed`, async () => {
    const source = open();
    await source.prepare();
    source.close();
    await assert.rejects(source.read(0, 1), { code: 'CLOSED' });
  });
}

test('only the slice asked for is read', async () => {
  const asked = [];
  const blob = {
    size: 512,
    slice(from, to) {
      asked.push([from, to]);
      return { arrayBuffer: async () => file.slice(from, to).buffer };
    },
  };
  await fromBlob(blob).read(16, 32);
  assert.deepEqual(asked, [[16, 48]]);
});

test('a large blob is streamed in pieces of 4 MiB', async () => {
  const sizes = [];
  for await (const chunk of fromBlob(new Blob([new Uint8Array(9 << 20)])).stream()) sizes.push(chunk.length >> 20);
  assert.deepEqual(sizes, [4, 4, 1]);
});

test('a file that vanished is one clear error', async () => {
  const blob = { size: 4, slice: () => ({ arrayBuffer: () => Promise.reject(new DOMException('gone', 'NotReadableError')) }) };
  await assert.rejects(fromBlob(blob).read(0, 4), { code: 'NOT_READABLE', message: 'the file can no longer be read: gone' });
});

test('a file that shrank is never read short', async () => {
  const blob = { size: 8, slice: () => ({ arrayBuffer: async () => new ArrayBuffer(3) }) };
  await assert.rejects(fromBlob(blob).read(0, 4), { code: 'SHORT_BODY', message: 'the file returned 3 of 4 bytes' });
});

test('bytes that were read are copies', async () => {
  const bytes = countingFile(8);
  const got = await fromBytes(bytes).read(0, 4);
  got[0] = 99;
  assert.equal(bytes[0], 0);
});

test('an aborted read rejects with the reason', async () => {
  const signal = AbortSignal.abort();
  await assert.rejects(fromBytes(file).read(0, 4, { signal }), { name: 'AbortError' });
});
