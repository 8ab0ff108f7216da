/** From `navigator.gpu` to a device with all that its adapter has, or an error that says what is missing. */

import { GpuDeviceError } from './error.js';

const WANTED_LIMITS = ['maxBufferSize', 'maxStorageBufferBindingSize'];
const FEATURES = ['shader-f16', 'subgroups']; // what kernels may use where it is there
const LANGUAGE_FEATURES = ['packed_4x8_integer_dot_product'];
const RETURN_MS = 3000;
const RETRY_MS = 100;
const hadAdapter = new WeakSet(); // GPU objects

/**
 * @param {GPU} [gpu]
 * @param {GPUPowerPreference} powerPreference
 * @returns {Promise<{device: GPUDevice, info: object, notes: string[],
 *   abilities: {features: string[], subgroupMinSize: number}}>}  notes are of the runtime
 */
export async function openAdapter(gpu, powerPreference) {
  if (!gpu) {
    throw new GpuDeviceError('this browser has no WebGPU here (navigator.gpu is missing; it needs a secure context)');
  }
  const adapter = await adapterOf(gpu, { powerPreference });
  const notes = [];
  const device = await deviceOf(adapter, notes);
  const info = adapter.info ?? (await adapter.requestAdapterInfo?.()) ?? {}; // a method in browsers of 2023
  return {
    device,
    notes,
    info: {
      vendor: info.vendor ?? '',
      architecture: info.architecture ?? '',
      device: info.device ?? '',
      description: info.description ?? '',
      isFallback: Boolean(info.isFallbackAdapter ?? adapter.isFallbackAdapter),
    },
    abilities: {
      features: [
        ...FEATURES.filter((name) => device.features?.has(name)),
        ...LANGUAGE_FEATURES.filter((name) => gpu.wgslLanguageFeatures?.has(name)),
      ],
      subgroupMinSize: info.subgroupMinSize ?? 0,
    },
  };
}

/** After the GPU's process has ended (a driver's fault) there is no adapter for a moment, until it is started again. */
async function adapterOf(gpu, options) {
  const deadline = performance.now() + (hadAdapter.has(gpu) ? RETURN_MS : 0);
  for (;;) {
    const adapter = await gpu.requestAdapter(options);
    if (adapter) {
      hadAdapter.add(gpu);
      return adapter;
    }
    if (performance.now() >= deadline) throw new GpuDeviceError('WebGPU found no adapter');
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

/** Limits that a browser does not know must not be asked for, and not all that it tells of is always granted. */
async function deviceOf(adapter, notes) {
  const limits = WANTED_LIMITS.filter((name) => adapter.limits?.[name]).map((name) => [name, adapter.limits[name]]);
  const requiredFeatures = FEATURES.filter((name) => adapter.features?.has(name));
  try {
    return await adapter.requestDevice({ requiredLimits: Object.fromEntries(limits), requiredFeatures });
  } catch (error) {
    console.warn(`WebGPU with the adapter's own limits and features was refused (${error.message}); trying without`);
    notes.push('webgpu_limits_refused:using_defaults');
  }
  try {
    return await adapter.requestDevice();
  } catch (error) {
    throw new GpuDeviceError(`the WebGPU adapter gave no device: ${error.message}`);
  }
}
