/**
 * A WebGPU device as the Python engine drives it (bridge/gpu/js_device.py): everything is a number, so that no proxy of
 * a JavaScript object lives in Python, and a batch is one call that replays prepared dispatches.
 *
 * Knows nothing about models or kernels. Errors are GpuDeviceError; those of a byte source pass through unchanged.
 */

import { openAdapter } from './gpu_device/adapter.js';
import { Completion } from './gpu_device/completion.js';
import { GpuDeviceError, GpuInterruption } from './gpu_device/error.js';
import { pumpFile } from './gpu_device/file_pump.js';
import { keep, recall } from './gpu_device/kept_texts.js';

export { GpuDeviceError };

const BINDING_TYPES = { uniform: 'uniform', read: 'read-only-storage', write: 'storage' };
const ERROR_FILTERS = ['validation', 'out-of-memory', 'internal'];
const LIMITS = [
  'maxBufferSize',
  'maxStorageBufferBindingSize',
  'maxStorageBuffersPerShaderStage',
  'maxComputeWorkgroupStorageSize',
  'maxComputeInvocationsPerWorkgroup',
  'maxComputeWorkgroupsPerDimension',
  'minStorageBufferOffsetAlignment',
  'minUniformBufferOffsetAlignment',
];

/**
 * The best adapter's device, with the largest buffers it allows.
 *
 * @param {{gpu?: GPU, powerPreference?: GPUPowerPreference}} options
 * @returns {Promise<GpuDevice>}
 */
export async function requestDevice({ gpu = globalThis.navigator?.gpu, powerPreference = 'high-performance' } = {}) {
  const { device, notes, info, abilities } = await openAdapter(gpu, powerPreference);
  const completion = new Completion(device.queue);
  const made = new GpuDevice(device, completion, info, abilities, notes); // from now on a loss ends what waits
  await completion.measure();
  if (completion.pokes) notes.push('webgpu_completion_at_intervals:polling');
  return made;
}

export class GpuDevice {
  #device;
  #queue;
  #completion;
  #info;
  #abilities;
  #notes;
  #objects = new Map(); // handle -> buffer, bind group, readback or program
  #pipelines = []; // kept as long as the device; handles are indices
  #pipelineOfSource = new Map();
  #layouts = new Map();
  #nextHandle = 1;
  #checks = []; // promises of error texts of what was created since the last check
  #lost = null;
  #failure = null;
  #underWay = Promise.resolve();
  #isInterrupted = false;
  #upload = null;
  #counters = { // those of bridge/gpu/device.py
    buffers: 0, buffer_bytes: 0, created: 0, submits: 0, dispatches: 0, maps: 0, bytes_read: 0, waits: 0, peak_bytes_in_flight: 0,
  };

  constructor(device, completion, info, abilities, notes) {
    this.#device = device;
    this.#queue = device.queue;
    this.#completion = completion;
    this.#info = info;
    this.#abilities = abilities;
    this.#notes = notes;
    device.lost.then(({ message, reason }) => {
      this.#lost ??= message || reason || 'no reason was given';
      this.#completion.fail(this.#lossError());
    });
    device.addEventListener('uncapturederror', ({ error }) => {
      this.#failure ??= error.message;
    });
  }

  /** What the adapter says of itself, limits and abilities, how long the device takes to say that it is idle, as JSON. */
  describe() {
    const limits = Object.fromEntries(LIMITS.map((name) => [name, this.#device.limits[name]]));
    const { latencyMs } = this.#completion;
    return JSON.stringify({ info: this.#info, limits, ...this.#abilities, latencyMs, notes: this.#notes });
  }

  /** Why the device is there no more; null while it is. */
  lost() {
    return this.#lost;
  }

  counters() {
    return JSON.stringify(this.#counters);
  }

  createBuffer(size, uniform, label) {
    const { COPY_DST, COPY_SRC, STORAGE, UNIFORM } = GPUBufferUsage;
    return this.#createBuffer(Math.ceil(size / 4) * 4, COPY_DST | COPY_SRC | (uniform ? UNIFORM : STORAGE), label);
  }

  /** @param {Uint8Array} bytes  offset and length are multiples of 4 */
  writeBuffer(handle, offset, bytes) {
    this.#throwIfLost();
    this.#queue.writeBuffer(this.#objects.get(handle), offset, bytes);
  }

  /** Compiles WGSL with the entry point main; `bindings` is JSON, kinds of the bindings of group 0. */
  createPipeline(source, label, bindings) {
    this.#throwIfLost();
    let pipeline = this.#pipelineOfSource.get(source);
    if (!pipeline) {
      pipeline = this.#compile(source, label, bindings);
      this.#pipelineOfSource.set(source, pipeline);
      pipeline.catch(() => this.#pipelineOfSource.delete(source));
    }
    return pipeline;
  }

  async #compile(source, label, bindings) {
    this.#device.pushErrorScope('validation'); // what is wrong is told by the pipeline's own error and the messages
    const module = this.#device.createShaderModule({ label, code: source });
    const layout = this.#device.createPipelineLayout({ bindGroupLayouts: [this.#layout(bindings)] });
    this.#device.popErrorScope().catch(() => {});
    try {
      const compute = { module, entryPoint: 'main' };
      const pipeline = await this.#device.createComputePipelineAsync({ label, layout, compute });
      this.#counters.created += 1;
      return this.#pipelines.push(pipeline) - 1;
    } catch (error) {
      this.#throwIfLost();
      const { messages } = await module.getCompilationInfo();
      const first = messages.find(({ type }) => type === 'error');
      const text = first ? `line ${first.lineNum}: ${first.message}` : error.message;
      throw new GpuDeviceError(`creating the pipeline ${label} failed: ${text}`);
    }
  }

  /** `entries` is JSON: [buffer handle, offset, size or null] for each binding. */
  createBindGroup(bindings, entries, label) {
    const layout = this.#layout(bindings);
    const described = JSON.parse(entries).map(([handle, offset, size], binding) => ({
      binding,
      resource: { buffer: this.#objects.get(handle), offset, size: size ?? undefined },
    }));
    return this.#create(`bind group ${label}`, () => this.#device.createBindGroup({ label, layout, entries: described }));
  }

  createReadback(source, rowBytes, rowStride, maxRows) {
    const size = rowBytes * maxRows;
    const staging = this.#createBuffer(size, GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST, 'readback');
    return this.#keep({
      source: this.#objects.get(source), staging: this.#objects.get(staging), handle: staging, rowBytes, rowStride,
      result: new Uint8Array(size),
    });
  }

  /** `dispatches` is JSON: [pipeline, bind group, x, y, z] each; `readback` a handle or 0. */
  createProgram(dispatches, params, readback) {
    return this.#keep({
      dispatches: JSON.parse(dispatches).map(([pipeline, bindGroup, x, y, z]) => ({
        pipeline: this.#pipelines[pipeline], bindGroup: this.#objects.get(bindGroup), x, y, z,
      })),
      params: this.#objects.get(params),
      readback: this.#objects.get(readback),
    });
  }

  /** @param {string} handles  JSON; buffers and readbacks are destroyed, the others forgotten */
  free(handles) {
    for (const handle of JSON.parse(handles)) this.#free(handle);
  }

  /**
   * One batch: write the parameters, replay the dispatches; with rows, map once and return their bytes, which are valid
   * until the next run. All is one pass and one submit, or several where `cuts` says before which dispatches.
   *
   * @param {Uint8Array} params
   * @param {string} [cuts]  JSON
   * @returns {Promise<Uint8Array | null>}
   */
  async run(programHandle, params, nRows, cuts) {
    this.#throwIfLost();
    this.#isInterrupted = false;
    const { dispatches, params: buffer, readback } = this.#objects.get(programHandle);
    this.#queue.writeBuffer(buffer, 0, params);
    try {
      let first = 0;
      for (const end of cuts ? JSON.parse(cuts) : []) {
        this.#submit(dispatches.slice(first, end));
        await this.#pace();
        if (this.#isInterrupted) throw new GpuInterruption();
        first = end;
      }
      this.#submit(first ? dispatches.slice(first) : dispatches, readback, nRows);
      return nRows ? await this.#read(readback, nRows) : await this.#pace();
    } catch (error) {
      throw await this.#explained(error);
    }
  }

  /** The batch under way, if it is one of several pieces, ends with those submitted; its run throws a GpuInterruption. */
  interrupt() {
    this.#isInterrupted = true;
  }

  /**
   * Several batches, of which each but the first has one of its parameters from the rows of the one before: the word at
   * byte `from` goes to byte `to`. A submit for each, at once, but one map for all, which gives the rows of all.
   *
   * @param {Uint8Array} params  blocks of `blockBytes` bytes
   * @returns {Promise<Uint8Array>}  it may be waited for later
   */
  runChain(programHandle, params, blockBytes, nRows, from, to) {
    this.#throwIfLost();
    const { dispatches, params: buffer, readback } = this.#objects.get(programHandle);
    const n = params.byteLength / blockBytes;
    for (let i = 0; i < n; i++) {
      this.#queue.writeBuffer(buffer, 0, params.subarray(i * blockBytes, (i + 1) * blockBytes));
      const linked = (encoder) => i && encoder.copyBufferToBuffer(readback.source, from, buffer, to, 4);
      this.#submit(dispatches, readback, nRows, i * nRows, linked);
    }
    const rows = this.#read(readback, n * nRows).catch(async (error) => {
      throw await this.#explained(error);
    });
    rows.catch(() => {}); // told to whoever waits for it
    return rows;
  }

  /** A copy of `size` bytes of a buffer; offset and size are multiples of 4. @returns {Promise<Uint8Array>} */
  async readBuffer(handle, offset, size) {
    this.#throwIfLost();
    const staging = this.#createBuffer(size, GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST, 'copy');
    const copy = this.#objects.get(staging);
    try {
      const encoder = this.#device.createCommandEncoder();
      encoder.copyBufferToBuffer(this.#objects.get(handle), offset, copy, 0, size);
      this.#queue.submit([encoder.finish()]);
      this.#counters.submits += 1;
      await this.check();
      this.#countRead(size);
      await this.#completion.of(copy.mapAsync(GPUMapMode.READ));
      const bytes = new Uint8Array(copy.getMappedRange()).slice();
      this.#throwIfFailed();
      return bytes;
    } catch (error) {
      throw await this.#explained(error);
    } finally {
      this.free(JSON.stringify([staging]));
    }
  }

  /** A text kept on an earlier visit, '' where there is none. @param {string} key @returns {Promise<string>} */
  async recall(key) {
    return (await recall(key)) ?? '';
  }

  /** @param {string} key @param {string} text */
  keep(key, text) {
    return keep(key, text);
  }

  /** Rejects with the first thing that went wrong in creating something since the last check. */
  async check() {
    const failures = (await Promise.all(this.#checks.splice(0))).filter(Boolean);
    this.#throwIfLost();
    if (failures.length) throw new GpuDeviceError(failures[0]);
  }

  /**
   * Streams a file into buffers.
   *
   * @param {{stream: Function}} source  of byte_source.js
   * @param {string} plan  JSON {ranges: [[start, end, segments]], segments: [[offset, length,
   *   buffer handle or 0, name, where in the buffer]]}
   * @param {(position: number) => void} onProgress
   * @returns {Promise<Uint8Array[]>} the segments without a buffer
   */
  async upload(source, plan, onProgress) {
    this.#throwIfLost();
    this.#upload = new AbortController();
    const device = {
      write: (handle, offset, bytes) => this.#queue.writeBuffer(this.#objects.get(handle), offset, bytes),
      drain: () => this.drain(),
      count: (pending) => {
        this.#counters.peak_bytes_in_flight = Math.max(this.#counters.peak_bytes_in_flight, pending);
      },
    };
    return pumpFile(source, JSON.parse(plan), device, onProgress, this.#upload.signal);
  }

  /** Waits until the device has done everything it was given. */
  async drain() {
    this.#throwIfLost();
    this.#queue.submit([]);
    this.#counters.waits += 1;
    await this.#completion.of(this.#queue.onSubmittedWorkDone());
    this.#throwIfFailed();
  }

  abortUpload() {
    this.#upload?.abort();
  }

  /** Frees every buffer and the device. */
  destroy() {
    this.#lost ??= 'it was destroyed';
    this.#completion.fail(this.#lossError());
    this.#upload?.abort();
    for (const handle of [...this.#objects.keys()]) this.#free(handle);
    this.#pipelines.length = 0;
    this.#pipelineOfSource.clear();
    this.#layouts.clear();
    this.#device.destroy();
  }

  #createBuffer(size, usage, label) {
    const what = `buffer ${label} of ${size} bytes`;
    const state = `, with ${this.#counters.buffer_bytes} bytes in buffers before it`;
    const handle = this.#create(what, () => this.#device.createBuffer({ label, size, usage }), state);
    this.#counters.buffers += 1;
    this.#counters.buffer_bytes += size;
    return handle;
  }

  #create(what, make, state = '') {
    this.#throwIfLost();
    for (const filter of ERROR_FILTERS) this.#device.pushErrorScope(filter);
    let object;
    try {
      object = make();
    } catch (error) {
      throw new GpuDeviceError(`creating the ${what} failed${state}: ${error.message}`); // a size that is no unsigned long long
    } finally {
      for (const _ of ERROR_FILTERS) {
        const failed = this.#device.popErrorScope().catch(() => null); // a lost device is told otherwise
        this.#checks.push(failed.then((error) => (
          error && `creating the ${what} failed${state}: ${error.message || 'out of memory'}`
        )));
      }
    }
    this.#counters.created += 1;
    return this.#keep(object);
  }

  #free(handle) {
    const object = this.#objects.get(handle);
    this.#objects.delete(handle);
    if (object?.staging) this.#free(object.handle);
    if (!(object instanceof GPUBuffer)) return;
    this.#counters.buffers -= 1;
    this.#counters.buffer_bytes -= object.size;
    object.destroy();
  }

  #keep(object) {
    this.#objects.set(this.#nextHandle, object);
    return this.#nextHandle++;
  }

  /** @param {string} bindings  JSON */
  #layout(bindings) {
    let layout = this.#layouts.get(bindings);
    if (!layout) {
      const entries = JSON.parse(bindings).map((kind, binding) => (
        { binding, visibility: GPUShaderStage.COMPUTE, buffer: { type: BINDING_TYPES[kind] } }
      ));
      layout = this.#device.createBindGroupLayout({ entries });
      this.#layouts.set(bindings, layout);
    }
    return layout;
  }

  #submit(dispatches, readback, nRows = 0, firstRow = 0, before = null) {
    const encoder = this.#device.createCommandEncoder();
    before?.(encoder);
    replay(encoder, dispatches);
    if (nRows) copyRows(encoder, readback, nRows, firstRow);
    this.#queue.submit([encoder.finish()]);
    this.#counters.submits += 1;
    this.#counters.dispatches += dispatches.length;
  }

  async #read({ staging, result, rowBytes }, nRows) {
    const size = rowBytes * nRows;
    this.#countRead(size);
    await this.#completion.of(staging.mapAsync(GPUMapMode.READ, 0, size));
    this.#underWay = Promise.resolve();
    result.set(new Uint8Array(staging.getMappedRange(0, size)));
    staging.unmap();
    this.#throwIfFailed();
    return result.subarray(0, size);
  }

  /** Waits for the submit before the last: two under way keep the device busy, more would only delay a cancellation. */
  async #pace() {
    const before = this.#underWay;
    this.#underWay = this.#queue.onSubmittedWorkDone().catch(() => {}); // a loss is told otherwise
    this.#counters.waits += 1;
    await this.#completion.of(before);
    this.#throwIfFailed();
    return null;
  }

  #countRead(bytes) {
    this.#counters.maps += 1;
    this.#counters.bytes_read += bytes;
    this.#counters.waits += 1;
  }

  #throwIfLost() {
    if (this.#lost) throw this.#lossError();
  }

  #lossError() {
    return new GpuDeviceError(`the device was lost: ${this.#lost}`);
  }

  #throwIfFailed() {
    this.#throwIfLost();
    const failure = this.#failure;
    this.#failure = null;
    if (failure) throw new GpuDeviceError(`the device failed: ${failure}`);
  }

  /** A mapping fails without a reason when the device is lost; the reason comes a moment later. */
  async #explained(error) {
    if (error instanceof GpuDeviceError) return error;
    await Promise.race([this.#device.lost, new Promise((resolve) => setTimeout(resolve, 200))]);
    if (this.#lost) return this.#lossError();
    return new GpuDeviceError(`the device failed: ${this.#failure ?? error.message}`);
  }
}

function replay(encoder, dispatches) {
  const pass = encoder.beginComputePass();
  let current = null;
  for (const { pipeline, bindGroup, x, y, z } of dispatches) {
    if (pipeline !== current) pass.setPipeline((current = pipeline));
    pass.setBindGroup(0, bindGroup);
    pass.dispatchWorkgroups(x, y, z);
  }
  pass.end();
}

function copyRows(encoder, { source, staging, rowBytes, rowStride }, nRows, firstRow) {
  if (rowBytes === rowStride) {
    encoder.copyBufferToBuffer(source, 0, staging, firstRow * rowBytes, nRows * rowBytes);
    return;
  }
  for (let row = 0; row < nRows; row++) {
    encoder.copyBufferToBuffer(source, row * rowStride, staging, (firstRow + row) * rowBytes, rowBytes);
  }
}
