import test, { after } from 'node:test';
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { fromBlob, fromBytes, fromFileHandle, fromURL, joinSources } from '../../web/byte_source.js';
import { concatenated, countingFile } from './byte_source_scripted.mjs';

const file = countingFile(512);
const blobURLOf = (bytes) => URL.createObjectURL(new Blob([bytes]));

const directory = mkdtempSync(join(tmpdir(), 'byte-source-'));
writeFileSync(join(directory, 'file'), file);
const nodeHandle = await open(join(directory, 'file'));
after(async () => {
  await nodeHandle.close();
  rmSync(directory, { recursive: true });
});
const pickedHandle = { getFile: async () => new File([file], 'picked.gguf', { lastModified: 5 }) };
const syncHandle = { getSize: () => 512, read: (into, { at }) => (into.set(file.subarray(at, at + into.length)), into.length) };
const identities = { 'picked handle': '512-5', 'handle of Node': `512-${statSync(join(directory, 'file')).mtimeMs}` };

for (const [name, open] of [
  ['blob', () => fromBlob(new Blob([file]))],
  ['picked handle', () => fromFileHandle(pickedHandle)],
  ['sync access handle', () => fromFileHandle(syncHandle)],
  ['handle of Node', () => fromFileHandle(nodeHandle)],
  ['joined', () => joinSources([fromBytes(file.slice(0, 20)), fromBytes(new Uint8Array(0)), fromBlob(new Blob([file.slice(20)]))])],
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
    assert.equal(source.identity(), identities[name] ?? null);
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

test('a file handle gives the size it was opened for, or says what it is now', async () => {
  const { rejects } = assert;
  await rejects(fromFileHandle(pickedHandle, 511).prepare(), { code: 'FILE_CHANGED', message: 'the file is now 512 bytes, was 511' });
  await rejects(fromFileHandle(nodeHandle, 513).read(510, 3), { code: 'SHORT_BODY', message: 'the file returned 2 of 3 bytes' });
  assert.equal(fromFileHandle(pickedHandle).size(), null);
});

test('what is no file handle, no blob and no size is refused at once', () => {
  for (const wrong of [undefined, null, 3, 'path', {}, { read() {} }]) assert.throws(() => fromFileHandle(wrong), TypeError);
  for (const wrong of [undefined, null, 'text', {}]) assert.throws(() => fromBlob(wrong), TypeError);
  for (const size of [-1, 1.5, Number.NaN, 2 ** 53, '7', null]) {
    assert.throws(() => fromFileHandle(nodeHandle, size), { code: 'INVALID_RANGE' });
  }
});

test('a handle whose file is gone is one clear error, and can be tried again', async () => {
  let gone = true;
  const handle = { getFile: async () => {
    if (gone) throw new DOMException('gone', 'NotFoundError');
    return new File([file], 'back');
  } };
  const source = fromFileHandle(handle);
  await assert.rejects(source.read(0, 1), { code: 'NOT_READABLE', message: 'the file can no longer be read: gone' });
  gone = false;
  assert.deepEqual(await source.read(0, 1), file.slice(0, 1));
});
