import assert from 'node:assert/strict';
import { test } from 'node:test';

import { SegmentWriter } from '../../web/gpu_device/segment_writer.js';

const FILE = Uint8Array.from({ length: 4000 }, (_, i) => (i * 7) % 251);
const SEGMENTS = [[10, 1, 1, 'a'], [11, 6, 2, 'b'], [64, 1000, 0, 'c'], [1067, 33, 3, 'd']];

for (const size of [1, 2, 3, 5, 64, 999, 4000]) {
  test(`segments are whole in chunks of ${size} bytes`, () => {
    const written = new Map();
    const begun = [];
    const write = ([, , , name], offset, bytes) => {
      assert.equal(offset % 4, 0);
      assert.ok(bytes.length % 4 === 0 && bytes.length > 0);
      const before = written.get(name) ?? [];
      assert.equal(offset, before.length);
      written.set(name, [...before, ...bytes]);
    };
    const writer = new SegmentWriter(5, SEGMENTS.slice(), (segment) => begun.push(segment[3]), write);
    for (let at = 5; at < 1100; at += size) writer.feed(FILE.subarray(at, Math.min(at + size, 1100)));
    writer.finish();
    assert.equal(writer.position, 1100);
    assert.deepEqual(begun, ['a', 'b', 'c', 'd']);
    for (const [offset, length, , name] of SEGMENTS) {
      const padding = new Array(-length & 3).fill(0);
      assert.deepEqual(written.get(name), [...FILE.subarray(offset, offset + length), ...padding]);
    }
  });
}

test('a stream that ends early is an error naming the tensor', () => {
  const writer = new SegmentWriter(64, SEGMENTS.slice(2), () => {}, () => {});
  writer.feed(FILE.subarray(64, 1080));
  assert.throws(() => writer.finish(), /ended at byte 1080 .* tensor d, which ends at byte 1100/);
});
