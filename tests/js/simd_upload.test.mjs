import assert from 'node:assert/strict';
import { test } from 'node:test';

import { macrotask, StepWriter, upload } from '../../web/simd_upload.js';

const DATA = Uint8Array.from({ length: 60 }, (_, i) => i);
const SPANS = [
  { offset: 3, length: 20, step: 4, row: 4, name: 'a' },
  { offset: 23, length: 7, step: 7, row: 7, name: 'b' },
  { offset: 40, length: 11, step: 3, row: 3, name: 'c' },
];

/** Staging memory that keeps what is taken out of it, by the name of the span. */
function recorder(capacity) {
  const staged = new Uint8Array(capacity);
  const taken = {};
  return {
    taken,
    stage: (at, bytes) => staged.set(bytes, at),
    take(span, done, count) {
      assert.equal(done, taken[span.name]?.length ?? 0);
      assert.equal(done % span.step, 0);
      assert.ok(count % span.step === 0 || done + count === span.length);
      taken[span.name] = [...(taken[span.name] ?? []), ...staged.subarray(0, count)];
    },
  };
}

const expected = Object.fromEntries(SPANS.map(({ name, offset, length }) => [name, [...DATA.subarray(offset, offset + length)]]));

for (const capacity of [7, 8, 13, 100]) {
  for (const size of [1, 2, 3, 5, 11, 60]) {
    test(`pieces of ${size} bytes through ${capacity} bytes of staging memory`, () => {
      const memory = recorder(capacity);
      const writer = new StepWriter(0, [...SPANS], capacity, memory);
      for (let at = 0; at < DATA.length; at += size) writer.feed(DATA.subarray(at, at + size));
      writer.finish();
      assert.deepEqual(memory.taken, expected);
    });
  }
}

test('a stream that ends early names the tensor', () => {
  const writer = new StepWriter(0, [...SPANS], 100, recorder(100));
  writer.feed(DATA.subarray(0, 30));
  assert.throws(() => writer.finish(), /ended at byte 30 of the file, inside tensor c, which ends at byte 51/);
});

/** A source that gives ten bytes at a time. */
const source = {
  async *stream(offset, length, { signal }) {
    for (let at = offset; at < offset + length; at += 10) {
      signal.throwIfAborted();
      yield DATA.subarray(at, Math.min(at + 10, offset + length));
    }
  },
};

test('each range is a stream of its own', async () => {
  const memory = recorder(20);
  const positions = [];
  const plan = { ranges: [[3, 30, 2], [40, 51, 1]], spans: SPANS.map((span) => ({ ...span })), capacity: 20 };
  await upload(source, plan, memory, new AbortController().signal, (position) => positions.push(position));
  assert.deepEqual(memory.taken, expected);
  assert.deepEqual(positions, positions.toSorted((a, b) => a - b));
});

test('an aborted upload stops with the reason', async () => {
  const abort = new AbortController();
  const memory = recorder(20);
  const stopping = { ...memory, take: (...part) => (memory.take(...part), abort.abort(new Error('stopped'))) };
  const plan = { ranges: [[3, 51, 3]], spans: SPANS.map((span) => ({ ...span })), capacity: 20 };
  await assert.rejects(upload(source, plan, stopping, abort.signal, () => {}), /stopped/);
  assert.ok(!('c' in memory.taken));
});

test('other tasks run before a macrotask ends', async () => {
  const order = [];
  setImmediate(() => order.push('immediate'));
  queueMicrotask(() => order.push('microtask'));
  await macrotask();
  order.push('macrotask');
  assert.equal(order[0], 'microtask');
  assert.equal(order.at(-1), 'macrotask');
});
