/** Moves a file's bytes into buffers in one pass. bridge/gpu/upload.py does the same for sources that Python reads. */

import { ProgressMeter } from './progress_meter.js';
import { SegmentWriter } from './segment_writer.js';

const SYNC_BYTES = 16 << 20; // written to the device before the pass waits for it

/**
 * @param {{stream: Function}} source  of byte_source.js
 * @param {{ranges: number[][], segments: Array[]}} plan  as for GpuDevice.upload
 * @param {object} device
 * @param {(handle: number, offset: number, bytes: Uint8Array) => void} device.write
 * @param {() => Promise<void>} device.drain  waits until all that was written is there
 * @param {(pending: number) => void} device.count  is told how many bytes are held
 * @param {(position: number) => void} onProgress
 * @param {AbortSignal} signal
 * @returns {Promise<Uint8Array[]>} the segments without a buffer
 */
export async function pumpFile(source, { ranges, segments }, device, onProgress, signal) {
  const host = [];
  const meter = new ProgressMeter(onProgress);
  let pending = 0;
  const write = ([, , handle, , at], offset, bytes) => {
    if (handle) device.write(handle, at + offset, bytes);
    else host.at(-1).set(bytes, offset);
  };
  const begin = ([, length, handle]) => {
    if (!handle) host.push(new Uint8Array(Math.ceil(length / 4) * 4));
  };
  for (const [start, end, count] of ranges) {
    const writer = new SegmentWriter(start, segments.splice(0, count), begin, write);
    for await (const chunk of source.stream(start, end - start, { signal })) {
      signal.throwIfAborted();
      if (pending && pending + chunk.byteLength > SYNC_BYTES) {
        await device.drain();
        signal.throwIfAborted();
        pending = 0;
      }
      pending += chunk.byteLength;
      device.count(pending);
      writer.feed(chunk);
      meter.report(writer.position);
    }
    writer.finish();
  }
  await device.drain();
  return host;
}
