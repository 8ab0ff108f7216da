// The device of a page on adapters of every kind, and what becomes of it when memory or the device itself goes.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { GpuDeviceError, requestDevice } from '../../web/gpu_device.js';
import { installFakeCaches } from './fake_caches.mjs';
import { CORE_LIMITS, FakeAdapter, gpuOf, installConstants } from './fake_gpu.mjs';
import { VirtualTime } from './virtual_time.mjs';

installConstants();

const PARAMS = new Uint8Array(64);

async function opened(options) {
  const adapter = new FakeAdapter(options);
  const device = await requestDevice({ gpu: gpuOf(adapter) });
  return { adapter, device, fake: adapter.made };
}

/** A program of so many dispatches, dispatch i of i + 1 workgroups, with a readback of four rows. */
async function programOf(device, count, stride = 16) {
  const params = device.createBuffer(64, false, 'params');
  const rows = device.createBuffer(64, false, 'rows');
  const pipeline = await device.createPipeline('fn main() {}', 'kernel', '["uniform"]');
  const group = device.createBindGroup('["uniform"]', JSON.stringify([[params, 0, null]]), 'kernel');
  const readback = device.createReadback(rows, 16, stride, 4);
  const dispatches = Array.from({ length: count }, (_, i) => [pipeline, group, i + 1, 1, 1]);
  return device.createProgram(JSON.stringify(dispatches), params, readback);
}

const turn = (ms = 0) => new Promise((resolve) => setTimeout(resolve, ms));
const error = (pattern) => (thrown) => thrown instanceof GpuDeviceError && pattern.test(thrown.message);

test('a browser without WebGPU, and one without an adapter, are told apart', async () => {
  await assert.rejects(requestDevice({ gpu: undefined }), error(/no WebGPU here .*secure context/));
  await assert.rejects(requestDevice({ gpu: gpuOf(null) }), error(/^WebGPU found no adapter$/));
});

test('an adapter that gives no device is an error with its reason', async () => {
  const refuses = () => {
    throw new Error('out of handles');
  };
  await assert.rejects(opened({ refuses }), error(/^the WebGPU adapter gave no device: out of handles$/));
});

test('an adapter that was there is waited for while the GPU is started again', async () => {
  const adapters = [new FakeAdapter(), null, null, new FakeAdapter()];
  const gpu = { requestAdapter: async () => adapters.shift() };
  const first = await requestDevice({ gpu });
  first.destroy();
  const again = await requestDevice({ gpu });
  assert.equal(again.lost(), null);
  assert.equal(adapters.length, 0);
});

test('limits of buffers are asked for as the adapter has them, and the device says what it got', async () => {
  const limits = { ...CORE_LIMITS, maxBufferSize: 2 ** 32, maxStorageBufferBindingSize: 2 ** 31 };
  const { adapter, device } = await opened({ limits, granted: CORE_LIMITS });
  assert.deepEqual(adapter.requests[0].requiredLimits, {
    maxBufferSize: limits.maxBufferSize, maxStorageBufferBindingSize: 2 ** 31,
  });
  assert.deepEqual(JSON.parse(device.describe()).limits, CORE_LIMITS);
});

test('limits that a browser does not know are not asked for and not told', async () => {
  const { maxBufferSize, ...limits } = CORE_LIMITS;
  const { adapter, device } = await opened({ limits });
  assert.deepEqual(Object.keys(adapter.requests[0].requiredLimits), ['maxStorageBufferBindingSize']);
  assert.deepEqual(JSON.parse(device.describe()).limits, limits);
});

test('a device is had without the larger limits where the browser refuses them after all', async () => {
  const warned = [];
  console.warn = (text) => warned.push(text);
  const { adapter, device } = await opened({
    features: ['shader-f16'],
    refuses: ({ requiredLimits }) => {
      if (requiredLimits) throw new Error('maxBufferSize is above what is there');
    },
  });
  assert.equal(adapter.requests.length, 2);
  const described = JSON.parse(device.describe());
  assert.deepEqual([described.limits, described.features], [CORE_LIMITS, []]);
  assert.deepEqual(described.notes, ['webgpu_limits_refused:using_defaults']);
  assert.match(warned[0], /maxBufferSize is above what is there/);
});

for (const [has, language, told] of [
  [[], [], []],
  [['subgroups', 'timestamp-query'], ['pointer_composite_access'], ['subgroups']],
  [['shader-f16'], ['packed_4x8_integer_dot_product'], ['shader-f16', 'packed_4x8_integer_dot_product']],
]) {
  test(`of an adapter with ${has.concat(language).join(', ') || 'no features'} what kernels use is asked for`, async () => {
    const adapter = new FakeAdapter({ features: has, info: { subgroupMinSize: 8 } });
    const device = await requestDevice({ gpu: gpuOf(adapter, ...language) });
    const { features, subgroupMinSize } = JSON.parse(device.describe());
    assert.deepEqual([features, subgroupMinSize], [told, 8]);
    assert.deepEqual(adapter.requests[0].requiredFeatures, told.filter((name) => has.includes(name)));
  });
}

test('a browser too old to tell features and limits has a device', async () => {
  const adapter = new FakeAdapter();
  const made = { requestDevice: (descriptor) => adapter.requestDevice(descriptor) };
  const device = await requestDevice({ gpu: { requestAdapter: async () => made } });
  const { features, subgroupMinSize } = JSON.parse(device.describe());
  assert.deepEqual([features, subgroupMinSize], [[], 0]);
});

for (const [what, options, vendor] of [
  ['no info at all', {}, ''],
  ['an empty info', { info: {} }, ''],
  ['the method of older browsers', { requestAdapterInfo: async () => ({ vendor: 'old' }) }, 'old'],
  ['an info', { info: { vendor: 'new', architecture: 'a', device: 'd', description: 'e' } }, 'new'],
]) {
  test(`an adapter with ${what} has a device`, async () => {
    const { device } = await opened(options);
    const { info } = JSON.parse(device.describe());
    assert.equal(info.vendor, vendor);
    assert.ok(Object.values(info).every((value) => ['string', 'boolean'].includes(typeof value)));
    assert.ok(await device.run(await programOf(device, 3), PARAMS, 1));
  });
}

test('a batch is one pass and one submit, or the pieces it is cut into, in order', async () => {
  const { device, fake } = await opened();
  const program = await programOf(device, 7, 32);
  await device.run(program, PARAMS, 2);
  await device.run(program, PARAMS, 1, '[2,6]');
  await device.run(program, PARAMS, 0, '[1]');
  assert.deepEqual(fake.queue.submits, [
    [['pass', 1, 2, 3, 4, 5, 6, 7, 'copy', 'copy']],
    [['pass', 1, 2]], [['pass', 3, 4, 5, 6]], [['pass', 7, 'copy']],
    [['pass', 1]], [['pass', 2, 3, 4, 5, 6, 7]],
  ]);
  const { submits, dispatches } = JSON.parse(device.counters());
  assert.deepEqual([submits, dispatches], [6, 21]);
  assert.deepEqual(fake.queue.writes.map(([label]) => label), ['params', 'params', 'params']);
});

test('a chain is a submit for each batch, the linked word before all but the first, and one wait', async () => {
  const { device, fake } = await opened();
  const program = await programOf(device, 2);
  const rows = await device.runChain(program, new Uint8Array(48), 16, 1, 4, 8);
  assert.equal(rows.length, 3 * 16);
  assert.deepEqual(fake.queue.submits, [
    [['pass', 1, 2, 'copy']], [['copy', 'pass', 1, 2, 'copy']], [['copy', 'pass', 1, 2, 'copy']],
  ]);
  const { submits, maps, waits } = JSON.parse(device.counters());
  assert.deepEqual([submits, maps, waits], [3, 1, 1]);
  assert.deepEqual(fake.queue.writes.map(([label]) => label), ['params', 'params', 'params']);
});

test('of many pieces two are under way, and the device never waits for the next', async () => {
  const { device, fake } = await opened();
  const program = await programOf(device, 6);
  fake.queue.held = true;
  const run = device.run(program, PARAMS, 0, '[1,2,3,4,5]');
  for (let done = 0; done < 4; done++) {
    await turn(1);
    assert.equal(fake.queue.submits.length, done + 2);
    fake.queue.finish(done + 1);
  }
  await turn(1);
  fake.queue.finish(5);
  assert.equal(await run, null, 'the last piece may still be under way');
  assert.equal(fake.queue.mostUnder, 2);
  const next = device.run(program, PARAMS, 1, '[3]');
  await turn(1);
  assert.equal(fake.queue.submits.length, 7, 'the piece of the batch before counts, too');
  fake.queue.finish(6);
  await turn(1);
  fake.queue.finish(8);
  assert.equal((await next).length, 16);
});

async function inVirtualTime(run) {
  const time = new VirtualTime().install();
  try {
    await run(time);
  } finally {
    time.uninstall();
  }
}

for (const phase of [0, 37, 99]) {
  test(`a browser that looks at intervals is kept awake, by measuring and not by name, ${phase} ms after a look`, async () => {
    await inVirtualTime(async (time) => {
      const { device, fake } = await time.until(opened({ lookMs: 100 }));
      const program = await time.until(programOf(device, 2));
      fake.queue.submitMs = 10;
      await time.pass(phase);
      const begun = time.now;
      for (let i = 0; i < 5; i++) await time.until(device.run(program, PARAMS, 1));
      assert.ok(time.now - begun <= 5 * (10 + 4), `five batches of 10 ms took ${time.now - begun} ms`);
      const { latencyMs, notes } = JSON.parse(device.describe());
      assert.ok(latencyMs <= 2);
      assert.deepEqual(notes, ['webgpu_completion_at_intervals:polling']);
      const { empty } = fake.queue;
      await time.pass(20);
      assert.equal(fake.queue.empty, empty, 'nothing is submitted when nobody waits');
      assert.equal(JSON.parse(device.counters()).submits, 5);
      device.destroy();
    });
  });
}

test('a browser that tells at once is left alone', async () => {
  await inVirtualTime(async (time) => {
    const { device, fake } = await time.until(opened());
    const asked = fake.queue.empty;
    assert.ok(asked <= 2);
    const program = await time.until(programOf(device, 2));
    fake.queue.submitMs = 15;
    await time.until(device.run(program, PARAMS, 1));
    assert.equal(fake.queue.empty, asked);
    assert.deepEqual(JSON.parse(device.describe()).notes, []);
  });
});

for (const [what, delays] of [['always', [40]], ['for a moment', [30, 60, 5, 4]], ['now and then', [5, 90, 3, 5, 80]]]) {
  test(`a device whose answers are late ${what} for other reasons is left alone, too`, async () => {
    await inVirtualTime(async (time) => {
      const adapter = new FakeAdapter();
      let count = 0;
      const slow = {
        limits: CORE_LIMITS,
        requestDevice: async (descriptor) => {
          const fake = await adapter.requestDevice(descriptor);
          fake.queue.done = () => turn(delays[count++ % delays.length]); // whatever is submitted meanwhile
          return fake;
        },
      };
      const device = await time.until(requestDevice({ gpu: gpuOf(slow) }));
      const { queue } = adapter.made;
      const asked = queue.empty;
      await time.until(programOf(device, 2).then((program) => device.run(program, PARAMS, 1)));
      assert.equal(queue.empty, asked);
      assert.deepEqual(JSON.parse(device.describe()).notes, []);
    });
  });
}

for (const [message, told] of [['the driver was reset', 'the driver was reset'], ['', 'unknown']]) {
  test(`a device lost with ${message ? 'a' : 'no'} message fails what is under way and every later call`, async () => {
    const { device, fake } = await opened();
    const program = await programOf(device, 6);
    fake.queue.held = true; // what waits would never be told
    const waiting = [
      device.run(program, PARAMS, 0, '[2,4]'), device.run(program, PARAMS, 1), device.drain(),
    ].map((promise) => assert.rejects(promise, error(new RegExp(`^the device was lost: ${told}$`))));
    await turn(1);
    fake.lose(message);
    await Promise.all(waiting);
    await assert.rejects(device.run(program, PARAMS, 1), error(/the device was lost/));
    await assert.rejects(device.check(), error(/the device was lost/));
    assert.throws(() => device.createBuffer(4, false, 'later'), error(/the device was lost/));
    device.destroy();
    device.destroy();
    assert.equal(JSON.parse(device.counters()).buffers, 0);
    assert.ok(fake.buffers.every(({ destroyed }) => destroyed === 1));
  });
}

test('a device that is lost from the start is an error, not a wait', async () => {
  const adapter = new FakeAdapter({ held: true });
  const opening = assert.rejects(requestDevice({ gpu: gpuOf(adapter) }), error(/^the device was lost: the GPU process is gone$/));
  await turn(1);
  adapter.made.lose('the GPU process is gone');
  await opening;
});

test('a copy that the device has no memory for is told as that', async () => {
  const { device } = await opened({ memory: 1000 });
  const buffer = device.createBuffer(800, false, 'k cache 0');
  await assert.rejects(device.readBuffer(buffer, 0, 400), error(/^creating the buffer copy of 400 bytes failed.*: out of memory$/));
  assert.equal((await device.readBuffer(buffer, 0, 200)).length, 200);
  assert.equal(JSON.parse(device.counters()).buffers, 1);
});

test('a device that is destroyed fails what is under way', async () => {
  const { device, fake } = await opened();
  const program = await programOf(device, 2);
  fake.queue.held = true;
  const run = assert.rejects(device.run(program, PARAMS, 1), error(/^the device was lost: it was destroyed$/));
  await turn(1);
  device.destroy();
  await run;
  assert.equal(fake.destroyed, 1);
});

test('an error that nobody asked for is told once, by the call it may have spoilt', async () => {
  const { device, fake } = await opened();
  const program = await programOf(device, 2);
  fake.uncaptured('Device::Submit ran out of memory');
  fake.uncaptured('and so did the next');
  await assert.rejects(device.run(program, PARAMS, 1), error(/^the device failed: Device::Submit ran out of memory$/));
  assert.ok(await device.run(program, PARAMS, 1));
});

test('memory that is not there names the buffer, and a smaller one is had afterwards', async () => {
  const { device } = await opened({ memory: 1000 });
  const fits = device.createBuffer(600, false, 'fits');
  const large = device.createBuffer(600, false, 'blk.0');
  await assert.rejects(device.check(), error(
    /^creating the buffer blk\.0 of 600 bytes failed, with 600 bytes in buffers before it: out of memory$/,
  ));
  device.free(JSON.stringify([fits, large]));
  device.createBuffer(900, false, 'smaller');
  await device.check();
  assert.equal(JSON.parse(device.counters()).buffers, 1);
});

test('of a file a few chunks are held at a time, however large it is', async () => {
  const { device, fake } = await opened();
  const size = 100 << 20;
  const buffer = device.createBuffer(size, false, 'weights');
  const chunk = new Uint8Array(1 << 20);
  const source = {
    async* stream(offset, length) {
      for (let at = 0; at < length; at += chunk.length) yield chunk;
    },
  };
  const plan = { ranges: [[0, size, 1]], segments: [[0, size, buffer, 'weights', 0]] };
  await device.upload(source, JSON.stringify(plan), () => {});
  const { peak_bytes_in_flight: peak, waits } = JSON.parse(device.counters());
  assert.ok(peak >= chunk.length && peak <= 16 << 20, `${peak} bytes were in flight`);
  assert.ok(waits >= size / (16 << 20));
  assert.equal(fake.queue.writes.reduce((sum, [, , nbytes]) => sum + nbytes, 0), size);
});

test('a text is kept from one device to the next, where the page has a cache', async () => {
  const { device } = await opened({});
  assert.equal(await device.recall('abc'), '');
  await device.keep('abc', 'lost');
  assert.equal(await device.recall('abc'), '');
  const caches = installFakeCaches();
  try {
    await device.keep('abc', '{"lanes":"8"}');
    assert.equal(await (await opened({})).device.recall('abc'), '{"lanes":"8"}');
    assert.equal(await device.recall('abd'), '');
    await device.keep('long', 'x'.repeat(5000));
    assert.equal(await device.recall('long'), '');
    caches.broken = 'open';
    await device.keep('abc', 'other');
    assert.equal(await device.recall('abc'), '');
  } finally {
    delete globalThis.caches;
  }
});

test('a batch that nobody wants any more ends with the pieces under way, and the next one is whole', async () => {
  const { device, fake } = await opened();
  const program = await programOf(device, 6);
  fake.queue.held = true;
  const run = device.run(program, PARAMS, 1, '[1,2,3,4,5]');
  const interrupted = assert.rejects(run, ({ name }) => name === 'GpuInterruption');
  await turn(1);
  device.interrupt();
  fake.queue.finish(1);
  await interrupted;
  assert.equal(fake.queue.submits.length, 2);
  fake.queue.finish(2);
  fake.queue.held = false;
  assert.ok(await device.run(program, PARAMS, 1, '[3]'));
  assert.equal(fake.queue.submits.length, 4);
  device.interrupt(); // between batches it changes nothing
  assert.ok(await device.run(program, PARAMS, 1, '[3]'));
});
