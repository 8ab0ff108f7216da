/** web/gguf.js in Node, with the real reader in its worker. GGUF_ASSETS names the folder that holds pyodide/ and wheels/. */
import test, { after } from 'node:test';
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { pathToFileURL } from 'node:url';

import * as exported from '../../web/gguf.js';
import { scriptedFetch } from './byte_source_scripted.mjs';
import { concat, gguf, smallModel } from './gguf_forge.mjs';

const { ByteSourceError, fromBlob, fromBytes, fromFileHandle, fromURL, GGUFError, openGGUF: openAnywhere } = exported;
const assetBase = pathToFileURL(`${process.env.GGUF_ASSETS}/`);
const openGGUF = (source, options) => openAnywhere(source, { assetBase, ...options });
const modelPath = new URL('../data/models/llama-untied-f16.gguf', import.meta.url);
const small = smallModel();
const PACKED_ROW = Float32Array.from({ length: 32 }, (_, i) => i - 16);
const is = (code, message) => (error) => {
  assert.ok(error instanceof GGUFError, `${error}`);
  assert.equal(error.code, code);
  assert.match(error.message, message);
  return true;
};

const handle = await open(modelPath);
after(() => handle.close());
const good = (bytes, answers = ['good']) => scriptedFetch(bytes, answers);

const own = (bytes, more = {}) => ({
  async prepare() {}, size: () => bytes.length, identity: () => 'mine', read: async (at, n) => bytes.slice(at, at + n), ...more,
});

for (const [name, source, options] of [
  ['bytes', () => small],
  ['a buffer', () => Buffer.from(small)],
  ['an ArrayBuffer', () => small.slice().buffer],
  ['a Blob', () => new Blob([small])],
  ['a source', () => fromBlob(new Blob([small]))],
  ['an address', () => 'https://models.example/m.gguf', { fetch: good(small).fetch }],
  ['a URL', () => new URL('https://models.example/m.gguf'), { fetch: good(small).fetch }],
  ['an object of the caller’s', () => own(small)],
  ['an object with the least there must be', () => ({ size: () => small.length, read: async (at, n) => small.slice(at, at + n) })],
  ['an object that gives ArrayBuffers', () => own(small, { read: async (at, n) => small.slice(at, at + n).buffer })],
]) {
  test(`opens ${name}`, async () => {
    const model = await openGGUF(source(), options);
    assert.equal(model.architecture, 'llama');
    assert.equal(model.version, 3);
    assert.equal(model.size, small.length);
    const { offset, ...packed } = model.tensors.get('packed');
    assert.deepEqual(packed, { name: 'packed', dtype: 'Q8_0', shape: [2, 32], nbytes: 68, shard: 0 });
    assert.equal(offset, model.dataOffset + 64);
    assert.deepEqual(await model.rows('packed', [1]), PACKED_ROW);
    assert.deepEqual(await model.bytes('packed'), small.slice(offset, offset + 68));
    model.close();
  });
}

test('rows in any order, also twice, and a whole tensor', async () => {
  const model = await openGGUF(small);
  assert.deepEqual(await model.rows('plain', [2, 0, 2]), Float32Array.of(8, 9, 10, 11, 0, 1, 2, 3, 8, 9, 10, 11));
  assert.deepEqual(await model.rows('plain', Uint32Array.of(1)), Float32Array.of(4, 5, 6, 7));
  assert.deepEqual(await model.rows('plain', new Set([1])), Float32Array.of(4, 5, 6, 7));
  assert.deepEqual(await model.rows('plain', []), new Float32Array(0));
  assert.deepEqual(await model.floats('packed'), Float32Array.from([...PACKED_ROW.map((x) => x / 2), ...PACKED_ROW]));
  const calls = Array.from({ length: 20 }, (_, i) => model.rows('plain', [i % 3]));
  (await Promise.all(calls)).forEach((row, i) => assert.equal(row[0], 4 * (i % 3), 'calls at the same time do not mix'));
  model.close();
});

for (const bad of [3, -1, 2 ** 32, 2 ** 32 + 1, 1.5, Number.NaN, Infinity, '1', null, undefined, true, 1n, {}, () => 1, Symbol('x')]) {
  test(`a row that is none: ${String(bad)}`, async () => {
    const model = await openGGUF(small);
    await assert.rejects(model.rows('plain', [0, bad]), is('INVALID_INPUT', /^plain: row .* is not one of its 3 rows$/));
    model.close();
  });
}

test('what is no list of rows', async () => {
  const model = await openGGUF(small);
  for (const bad of [1, '12', null, undefined, {}, new Map([[0, 1]])]) {
    await assert.rejects(model.rows('plain', bad), is('INVALID_INPUT', /takes a list of row indices, got /));
  }
  model.close();
});

test('tensors that the file does not have', async () => {
  const model = await openGGUF(small);
  for (const ask of [(name) => model.bytes(name), (name) => model.rows(name, [0]), (name) => model.floats(name)]) {
    for (const name of ['none', undefined, '__proto__']) {
      await assert.rejects(ask(name), is('INVALID_MODEL', /^the file has no tensor ".*"; it has 2 tensors$/));
    }
  }
  model.close();
});

test('metadata, exactly', async () => {
  const model = await openGGUF(smallModel({
    int: ['u32', 7], minus: ['i32', -7], large: ['u64', 2n ** 60n], small: ['i64', -(2n ** 60n)], exact: ['u64', 2n ** 52n + 1n],
    half: ['f32', 0.5], nan: ['f64', Number.NaN], yes: ['bool', 1], text: ['string', 'naïve 模型'],
    flags: ['array', 'bool', [1, 0]], words: ['array', 'string', ['a', '']], bytes: ['array', 'string', [Uint8Array.of(0xff)]],
    long: ['array', 'f32', Array.from({ length: 1000 }, (_, i) => i)],
    tokens: ['array', 'string', Array.from({ length: 100 }, (_, i) => `t${i}`)],
  }));
  const { int, minus, large, small: low, exact, half, nan, yes, text, flags, words, bytes, long } = Object.fromEntries(model.metadata);
  assert.deepEqual([int, minus, large, low, exact, half, nan, yes, text], [7, -7, 2n ** 60n, -(2n ** 60n), 2 ** 52 + 1, 0.5, Number.NaN, true, 'naïve 模型']);
  assert.deepEqual([flags, words], [[true, false], ['a', '']]);
  assert.equal(bytes[0], '\udcff', 'bytes that are not UTF-8 stand as lone surrogates');
  assert.deepEqual({ ...long, first: long.first.slice(0, 3) }, { type: 'array of f32', length: 1000, first: [0, 1, 2] });
  assert.equal(model.metadataTypes.get('large'), 'u64');
  const whole = await model.metadataArray('long');
  assert.ok(whole instanceof Float32Array && whole.length === 1000 && whole[999] === 999);
  assert.deepEqual((await model.metadataArray('tokens')).slice(-2), ['t98', 't99']);
  assert.deepEqual(await model.metadataArray('words'), ['a', '']);
  assert.equal(await model.metadataArray('none'), undefined);
  await assert.rejects(model.metadataArray('int'), is('INVALID_INPUT', /int is of type u32, not an array/));
  model.close();
});

const tensor = (more) => ({ name: 't', dims: [4], type: 0, offset: 0, ...more });
for (const [name, file, code, message] of [
  ['no GGUF', new TextEncoder().encode('<!doctype html>'), 'INVALID_GGUF', /not a GGUF file/],
  ['a tensor past the end', gguf({}, [tensor({ dims: [64] })], new Uint8Array(64)), 'INVALID_GGUF', /^tensor 't': bytes 64-319 are past the end of a 128-byte file$/],
  ['an offset past 2^53', gguf({}, [tensor({ offset: 2n ** 53n + 32n })], new Uint8Array(64)), 'INVALID_GGUF', /^tensor 't': bytes 9007199254741088-\d+ are past the end of a 128-byte file$/],
  ['an offset near 2^64', gguf({}, [tensor({ offset: 2n ** 64n - 32n })], new Uint8Array(64)), 'INVALID_GGUF', /^tensor 't'.* past the end/],
  ['a product that wraps', gguf({}, [tensor({ dims: [2n ** 62n, 4] })], new Uint8Array(64)), 'INVALID_GGUF', /'t' has shape/],
  ['an unknown type', gguf({}, [tensor({ type: 99 })], new Uint8Array(64)), 'UNSUPPORTED_GGUF', /'t': unknown tensor type id 99/],
  ['two files glued', concat([small, small]), 'INVALID_GGUF', /glued together.*merge/],
]) {
  test(`refuses ${name}`, async () => {
    await assert.rejects(openGGUF(file), (error) => is(code, message)(error) && error.needsMoreBytes === false);
  });
}

test('only a file that is cut off needs more bytes', async () => {
  await assert.rejects(openGGUF(small.slice(0, 100)), (error) => is('TRUNCATED_GGUF', /ends inside its header/)(error) && error.needsMoreBytes);
});

test('what is no source', async () => {
  for (const bad of [undefined, null, 7, {}, { size: 3 }, { read() {} }, [7]]) {
    await assert.rejects(openGGUF(bad), is('INVALID_INPUT', /openGGUF takes an address, a Blob, .* or a list of these, got/));
  }
  for (const size of [undefined, null, -1, 1.5, 2 ** 53, '9', 9n]) {
    await assert.rejects(openGGUF(own(small, { size: () => size })), is('SOURCE_FAILED', /the source says that its size is/));
  }
});

test('sources that give something else', async () => {
  await assert.rejects(openGGUF(own(small, { read: async () => small.slice(0, 3) })), is('SOURCE_FAILED', /the source returned 3 of \d+ bytes at offset 0/));
  await assert.rejects(openGGUF(own(small, { read: async () => 'text' })), is('SOURCE_FAILED', /returned string, not a Uint8Array/));
  const mine = new Error('my own');
  await assert.rejects(openGGUF(own(small, { read: async () => { throw mine; } })), (error) => error === mine);
  await assert.rejects(openGGUF(own(small, { prepare: async () => { throw mine; } })), (error) => error === mine);
});

test('what a source gave stays its own', async () => {
  const whole = small.slice();
  const model = await openGGUF(own(whole, { read: async (at, n) => whole.subarray(at, at + n) }));
  await model.rows('packed', [0]);
  assert.deepEqual(whole, small, 'neither detached nor changed');
  model.close();
});

test('the file changes while it is read', async () => {
  const { fetch } = good(small, ['good', 'good', { set: { ETag: '"v2"' } }]);
  const model = await openGGUF('https://models.example/m.gguf', { fetch });
  await assert.rejects(model.rows('packed', [0]), (error) => {
    assert.ok(error instanceof ByteSourceError);
    assert.equal(error.code, 'FILE_CHANGED');
    assert.match(error.message, /changed identity/);
    return true;
  });
  model.close();
});

test('a server that honours no ranges costs one request', async () => {
  const { fetch, requests } = good(small, [{ status: 200, set: { 'Content-Range': null }, body: 'whole' }]);
  await assert.rejects(openGGUF('https://models.example/m.gguf', { fetch }), { code: 'RANGE_NOT_HONOURED' });
  assert.equal(requests.length, 1);
});

test('no validator: refused, or allowed and then without identity', async () => {
  const { fetch } = good(small, [{ set: { ETag: null } }]);
  await assert.rejects(openGGUF('https://models.example/m.gguf', { fetch }), { code: 'NO_VALIDATOR' });
  const model = await openGGUF('https://models.example/m.gguf', { fetch, allowUnvalidated: true });
  assert.equal(model.identity(), null);
  model.close();
});

test('a row costs one request, and nothing but its bytes', async () => {
  const { fetch, requests } = good(small);
  const model = await openGGUF(fromURL('https://models.example/m.gguf', { fetch }));
  assert.equal(model.identity(), '"v1"');
  assert.equal(requests.length, 2, 'one byte, and the header');
  await model.rows('packed', [1]);
  const { offset } = model.tensors.get('packed');
  assert.deepEqual(requests.slice(2), [[`bytes=${offset + 34}-${offset + 67}`, '"v1"']]);
  model.close();
});

function splitModel() {
  const keys = (number) => ({ 'split.no': ['u32', number], 'split.count': ['u32', 2], 'split.tensors.count': ['i32', 2] });
  const bytes = new Uint8Array(Float32Array.of(1, 2, 3, 4).buffer);
  return [
    gguf({ 'general.architecture': ['string', 'llama'], ...keys(0) }, [tensor({ name: 'first' })], bytes),
    gguf(keys(1), [tensor({ name: 'second' })], bytes.map((_, i) => bytes[(i + 4) % 16])),
  ];
}

test('a split model, by a list of its files or the address of any of them', async () => {
  const shards = splitModel();
  const files = shards.map((shard) => good(shard));
  const fetch = (url, init) => files[Number(/-0000(\d)-of/.exec(url)[1]) - 1].fetch(url, init);
  for (const [source, options] of [[shards], [shards.map((shard) => new Blob([shard]))], ['https://h/m-00002-of-00002.gguf', { fetch }]]) {
    const model = await openGGUF(source, options);
    assert.deepEqual([...model.tensors.values()].map(({ name, shard }) => [name, shard]), [['first', 0], ['second', 1]]);
    assert.deepEqual(model.shards, shards.map(({ length }) => length));
    assert.deepEqual(await model.floats('second'), Float32Array.of(2, 3, 4, 1));
    model.close();
  }
  await assert.rejects(openGGUF(shards[1]), is('INVALID_GGUF', /shard 2 of 2 of a split model, and all 2 are needed/));
  await assert.rejects(openGGUF([shards[1], shards[0]]), is('INVALID_GGUF', /place of shard 1 of 2 says that it is shard 2: the shards are shuffled/));
  await assert.rejects(openGGUF(concat(shards)), is('INVALID_GGUF', /glued together/));
});

test('tokens', async () => {
  const model = await openGGUF(fromFileHandle(handle));
  const tokenizer = model.tokenizer();
  assert.equal(model.tokenizer(), tokenizer);
  const { nVocab, bosId } = await tokenizer.prepare();
  assert.equal(nVocab, model.metadata.get('tokenizer.ggml.tokens').length);
  const text = '\ufeffHello naïve world 😀';
  const ids = await tokenizer.encode(text);
  assert.equal(ids[0], bosId);
  assert.deepEqual(await tokenizer.encode(text, { addSpecial: false }), ids.slice(1));
  assert.deepEqual(await tokenizer.encode(new TextEncoder().encode(text)), ids);
  assert.equal(await tokenizer.decode(ids.slice(1)), text);
  const emoji = await tokenizer.encode('😀', { addSpecial: false });
  assert.ok(emoji.length > 1, 'the vocabulary has no token of its own for it');
  assert.deepEqual(await tokenizer.decodeBytes(emoji.slice(0, 1)), new TextEncoder().encode('😀').slice(0, 1), 'part of a character');
  assert.equal((await tokenizer.pieces(ids)).length, ids.length);
  assert.deepEqual(concat(await tokenizer.pieces(emoji)), new TextEncoder().encode('😀'));
  assert.equal(await tokenizer.decode([bosId]), '');
  assert.notEqual(await tokenizer.decode([bosId], { special: true }), '');
  for (const bad of [undefined, 5, null, {}]) await assert.rejects(tokenizer.encode(bad), is('INVALID_INPUT', /encode\(\) takes a string/));
  for (const bad of [5, 'text', null]) await assert.rejects(tokenizer.decode(bad), is('INVALID_INPUT', /decode\(\) takes a list of token ids/));
  for (const bad of [1.5, '1', null]) await assert.rejects(tokenizer.decode([bad]), is('INVALID_INPUT', /token ids must be integers/));
  await assert.rejects(tokenizer.decode([nVocab]), is('INVALID_INPUT', /outside the vocabulary/));
  model.close();
});

test('a tokenizer that this build does not know is refused by name', async () => {
  const model = await openGGUF(smallModel({
    'tokenizer.ggml.model': ['string', 'gpt2'], 'tokenizer.ggml.pre': ['string', 'from-the-future'],
    'tokenizer.ggml.tokens': ['array', 'string', ['a', 'b']], 'tokenizer.ggml.merges': ['array', 'string', ['a b']],
  }));
  await assert.rejects(model.tokenizer().encode('a'), is('UNSUPPORTED', /from-the-future/));
  model.close();
});

test('limits', async () => {
  await assert.rejects(openGGUF(small, { limits: { maxTensors: 1 } }), is('GGUF_LIMIT_EXCEEDED', /the limit is 1 \(max_tensors\)/));
  await assert.rejects(openGGUF(small, { limits: { maxTensor: 1 } }), is('INVALID_INPUT', /no limit 'maxTensor'; there are maxHeaderBytes/));
  await assert.rejects(openGGUF(small, { limits: { maxTensors: 0 } }), is('INVALID_INPUT', /at least 1/));
  await assert.rejects(openGGUF(small, { limits: 7 }), is('INVALID_INPUT', /limits is an object/));
});

const never = () => new Promise(() => {});

test('an abort ends an open that waits, whatever it waits for', async () => {
  for (const more of [{ prepare: never }, { read: never }]) {
    const controller = new AbortController();
    const opening = openGGUF(own(small, more), { signal: controller.signal });
    setTimeout(() => controller.abort(new Error('enough')), 20);
    await assert.rejects(opening, /enough/);
  }
  await assert.rejects(openGGUF(small, { signal: AbortSignal.abort() }), { name: 'AbortError' });
});

test('an abort ends one call, and tells its reads; the model goes on', async () => {
  let slow = false;
  let told = null;
  const model = await openGGUF(own(small, {
    read: (at, n, { signal }) => {
      if (!slow) return Promise.resolve(small.slice(at, at + n));
      told = signal;
      return never();
    },
  }));
  slow = true;
  const controller = new AbortController();
  const rows = model.rows('packed', [0], { signal: controller.signal });
  setTimeout(() => controller.abort(), 20);
  await assert.rejects(rows, { name: 'AbortError' });
  assert.ok(told.aborted);
  slow = false;
  assert.deepEqual(await model.rows('packed', [1]), PACKED_ROW);
  model.close();
});

test('close', async () => {
  let closed = 0;
  const model = await openGGUF(own(small, { close: () => { closed += 1; } }));
  const tokenizer = model.tokenizer();
  model.close();
  model.close();
  assert.equal(closed, 1);
  for (const ask of [() => model.bytes('plain'), () => model.rows('plain', [0]), () => model.floats('plain'), () => tokenizer.encode('a')]) {
    await assert.rejects(ask(), is('CLOSED', /the model is closed/));
  }
  assert.throws(() => model.tokenizer(), is('CLOSED', /the model is closed/));
  assert.equal(model.architecture, 'llama', 'what was read stays');
});

test('a source that was given stays open when the file is refused', async () => {
  const source = fromBytes(new TextEncoder().encode('nothing of the sort'));
  await assert.rejects(openGGUF(source), is('INVALID_GGUF', /not a GGUF file/));
  assert.equal((await source.read(0, 7)).length, 7);
});

test('a reader that cannot start is one clear error', async () => {
  const nowhere = pathToFileURL('/nonexistent/');
  await assert.rejects(openGGUF(small, { assetBase: nowhere }), is('READER_FAILED', /the reader did not start/));
});

test('values of a real model are those of the file', async () => {
  const file = readFileSync(modelPath);
  const model = await openGGUF(fromFileHandle(handle, file.length));
  const norm = model.tensors.get('output_norm.weight');
  assert.equal(norm.dtype, 'F32');
  assert.deepEqual(await model.floats(norm.name), new Float32Array(file.buffer.slice(file.byteOffset + norm.offset, file.byteOffset + norm.offset + norm.nbytes)));
  model.close();
});

test('gguf.d.ts declares what there is', async () => {
  const declared = readFileSync(new URL('../../web/gguf.d.ts', import.meta.url), 'utf8');
  const names = (text, pattern) => [...text.matchAll(pattern)].map((match) => match[1]).sort();
  assert.deepEqual(names(declared, /^export (?:function|class|const) (\w+)/gm), Object.keys(exported).sort());
  const model = await openGGUF(fromFileHandle(handle));
  for (const [name, object] of [['GGUFModel', model], ['Tokenizer', model.tokenizer()]]) {
    const [, body] = new RegExp(`export interface ${name} \\{\\n(.*?)\\n\\}`, 's').exec(declared);
    const methods = Object.getOwnPropertyNames(Object.getPrototypeOf(object)).filter((member) => member !== 'constructor');
    assert.deepEqual(names(body, /^ {2}(?:readonly )?(\w+)[(:]/gm), [...Object.keys(object), ...methods].sort());
  }
  const { nVocab, ...facts } = await model.tokenizer().prepare();
  const [, vocabulary] = /export interface Vocabulary \{\n(.*?)\n\}/s.exec(declared);
  assert.deepEqual(names(vocabulary, /^ {2}readonly (\w+)/gm), ['nVocab', ...Object.keys(facts)].sort());
  model.close();
});
