// A WebGPU that computes nothing: adapters of any kind, memory that runs out, devices that are lost, and browsers that
// look only now and then at what is done.

export const CORE_LIMITS = {
  maxBufferSize: 256 << 20,
  maxStorageBufferBindingSize: 128 << 20,
  maxStorageBuffersPerShaderStage: 8,
  maxComputeWorkgroupStorageSize: 16384,
  maxComputeInvocationsPerWorkgroup: 256,
  maxComputeWorkgroupsPerDimension: 65535,
  minStorageBufferOffsetAlignment: 256,
  minUniformBufferOffsetAlignment: 256,
};

export class FakeBuffer {
  constructor(device, { size, usage, label }) {
    Object.assign(this, { device, size, usage, label, destroyed: 0 });
  }

  mapAsync() {
    return this.device.queue.done();
  }

  getMappedRange(offset = 0, size = this.size) {
    return new ArrayBuffer(size);
  }

  unmap() {}

  destroy() {
    this.destroyed += 1;
    this.device.used -= this.size;
  }
}

export function installConstants() {
  globalThis.GPUBufferUsage = { MAP_READ: 1, COPY_SRC: 4, COPY_DST: 8, UNIFORM: 64, STORAGE: 128 };
  globalThis.GPUMapMode = { READ: 1 };
  globalThis.GPUShaderStage = { COMPUTE: 4 };
  globalThis.GPUBuffer = FakeBuffer;
}

/** Work takes `submitMs`; it is told at once, or (`lookMs`) at intervals and with a submit, or (`held`) by `finish`. */
class FakeQueue {
  constructor({ submitMs = 0, lookMs = 0, held = false }) {
    Object.assign(this, { submitMs, held, submits: [], empty: 0, writes: [], under: 0, mostUnder: 0 });
    this.freeAt = 0;
    this.waiting = [];
    this.lookMs = lookMs;
    if (lookMs) this.interval = setInterval(() => this.look(), lookMs);
  }

  submit(commands) {
    this.look();
    if (!commands.length) {
      this.empty += 1;
      return;
    }
    this.submits.push(commands);
    this.under += 1;
    this.mostUnder = Math.max(this.under, this.mostUnder);
    this.freeAt = Math.max(performance.now(), this.freeAt) + this.submitMs;
  }

  writeBuffer(buffer, offset, bytes) {
    this.writes.push([buffer.label, offset, bytes.byteLength]);
  }

  onSubmittedWorkDone() {
    return this.done();
  }

  /** Resolves when all that was submitted is done and somebody looks. */
  done() {
    const [at, count] = [this.freeAt, this.submits.length];
    return new Promise((resolve, reject) => {
      this.waiting.push({ at, count, resolve, reject });
      if (!this.lookMs && !this.held) setTimeout(() => this.look(), Math.max(0, at - performance.now()));
    });
  }

  look() {
    const now = performance.now() + 1; // timers may be that early
    if (this.held) return;
    for (const { resolve } of this.waiting.filter(({ at }) => at <= now)) resolve();
    this.waiting = this.waiting.filter(({ at }) => at > now);
    if (now >= this.freeAt) this.under = 0;
  }

  /** Of a queue that is held: the first `count` submits are done. */
  finish(count) {
    this.under = this.submits.length - count;
    for (const wait of this.waiting.filter((wait) => wait.count <= count)) wait.resolve();
    this.waiting = this.waiting.filter((wait) => wait.count > count);
  }
}

export class FakeDevice extends EventTarget {
  constructor({ limits = CORE_LIMITS, memory = Infinity, features = [], ...behaviour }) {
    super();
    Object.assign(this, { limits, memory, features: new Set(features), behaviour });
    Object.assign(this, { used: 0, scopes: [], buffers: [], destroyed: 0, queue: new FakeQueue(behaviour) });
    this.lost = new Promise((resolve) => {
      this.lose = (message, reason = 'unknown') => resolve({ message, reason });
    });
  }

  pushErrorScope(filter) {
    this.scopes.push({ filter, error: null });
  }

  async popErrorScope() {
    return this.scopes.pop().error;
  }

  #fail(filter, message) {
    const scope = this.scopes.findLast((open) => open.filter === filter);
    if (scope) scope.error ??= { message };
    else this.uncaptured(message);
  }

  uncaptured(message) {
    this.dispatchEvent(Object.assign(new Event('uncapturederror'), { error: { message } }));
  }

  createBuffer(descriptor) {
    const buffer = new FakeBuffer(this, descriptor);
    this.buffers.push(buffer);
    this.used += descriptor.size;
    if (descriptor.size > this.limits.maxBufferSize) this.#fail('validation', 'the size is above maxBufferSize');
    else if (this.used > this.memory) this.#fail('out-of-memory', '');
    return buffer;
  }

  createShaderModule({ code }) {
    const messages = code.includes('nonsense') ? [{ type: 'error', lineNum: 1, message: 'nonsense' }] : [];
    return { code, getCompilationInfo: async () => ({ messages }) };
  }

  createPipelineLayout(descriptor) {
    return descriptor;
  }

  createBindGroupLayout(descriptor) {
    return descriptor;
  }

  createBindGroup(descriptor) {
    return descriptor;
  }

  async createComputePipelineAsync({ label, compute }) {
    if (compute.module.code.includes('nonsense')) throw new Error('the module is invalid');
    return { label };
  }

  createCommandEncoder() {
    const commands = [];
    return {
      beginComputePass: () => {
        commands.push('pass');
        return {
          setPipeline: () => {},
          setBindGroup: () => {},
          dispatchWorkgroups: (x) => commands.push(x),
          end: () => {},
        };
      },
      copyBufferToBuffer: () => commands.push('copy'),
      finish: () => commands,
    };
  }

  destroy() {
    this.destroyed += 1;
    clearInterval(this.queue.interval);
    this.lose('', 'destroyed');
  }
}

/** An adapter; `refuses(descriptor)` may throw what `requestDevice` rejects with, `granted` are the device's own limits. */
export class FakeAdapter {
  constructor({ limits = CORE_LIMITS, granted = limits, info, requestAdapterInfo, refuses = () => {}, ...device } = {}) {
    Object.assign(this, { limits, granted, refuses, device, requests: [], features: new Set(device.features) });
    if (info !== undefined) this.info = info;
    if (requestAdapterInfo) this.requestAdapterInfo = requestAdapterInfo;
  }

  async requestDevice(descriptor = {}) {
    this.requests.push(descriptor);
    this.refuses(descriptor);
    this.made = new FakeDevice({ ...this.device, limits: this.granted, features: descriptor.requiredFeatures });
    return this.made;
  }
}

export function gpuOf(adapter, ...wgslLanguageFeatures) {
  return { requestAdapter: async () => adapter, wgslLanguageFeatures: new Set(wgslLanguageFeatures) };
}
