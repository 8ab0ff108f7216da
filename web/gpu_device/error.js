export class GpuDeviceError extends Error {
  name = 'GpuDeviceError';
}

/** A batch that was not submitted to its end, because nobody wants it any more. */
export class GpuInterruption extends GpuDeviceError {
  name = 'GpuInterruption';

  constructor() {
    super('the batch was interrupted');
  }
}
