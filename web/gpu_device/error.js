export class GpuDeviceError extends Error {
  name = 'GpuDeviceError';
}
