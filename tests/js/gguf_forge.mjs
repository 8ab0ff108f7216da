/** Writes small GGUF files; counts, types and offsets may lie. The page's half of tests/gguf/forge.py. */

const SCALARS = {
  u8: [0, 1, 'setUint8'], i32: [5, 4, 'setInt32'], u32: [4, 4, 'setUint32'], f32: [6, 4, 'setFloat32'], bool: [7, 1, 'setUint8'],
  u64: [10, 8, 'setBigUint64'], i64: [11, 8, 'setBigInt64'], f64: [12, 8, 'setFloat64'],
};

function number(kind, value) {
  const [, size, set] = SCALARS[kind];
  const bytes = new Uint8Array(size);
  new DataView(bytes.buffer)[set](0, set.includes('Big') ? BigInt(value) : value, true);
  return bytes;
}

export function concat(parts) {
  return new Uint8Array(parts.flatMap((part) => [...part]));
}

function string(text) {
  const bytes = typeof text === 'string' ? new TextEncoder().encode(text) : text;
  return concat([number('u64', bytes.length), bytes]);
}

/** A metadata value: [kind, value], with ['array', kind, values] for an array. */
function value([kind, content, items]) {
  if (kind === 'string') return concat([number('u32', 8), string(content)]);
  if (kind !== 'array') return concat([number('u32', SCALARS[kind][0]), number(kind, content)]);
  const body = items.map((item) => (content === 'string' ? string(item) : number(content, item)));
  const id = content === 'string' ? 8 : SCALARS[content][0];
  return concat([number('u32', 9), number('u32', id), number('u64', items.length), ...body]);
}

/** @param {Record<string, Array>} metadata @param {Array<{name: string, dims: Array, type: number, offset: number | bigint}>} tensors */
export function gguf(metadata = {}, tensors = [], data = new Uint8Array(0)) {
  const entries = Object.entries(metadata).map(([key, content]) => concat([string(key), value(content)]));
  const table = tensors.map(({ name, dims, type, offset }) => concat([
    string(name), number('u32', dims.length), ...dims.map((n) => number('u64', n)), number('u32', type), number('u64', offset),
  ]));
  const counts = [number('u32', 3), number('u64', tensors.length), number('u64', entries.length)];
  const head = concat([new TextEncoder().encode('GGUF'), ...counts, ...entries, ...table]);
  return concat([head, new Uint8Array((32 - (head.length % 32)) % 32), data]);
}

/** A model with an F32 matrix [3, 4] of 0, 1, … 11 and a Q8_0 one [2, 32], whose rows are 0.5 and 1 times -16 … 15. */
export function smallModel(metadata = {}) {
  const f32 = new Uint8Array(new Float32Array(12).map((_, i) => i).buffer);
  const quants = Array.from({ length: 32 }, (_, i) => (i - 16) & 255);
  const q8 = [...[0x00, 0x38], ...quants, ...[0x00, 0x3c], ...quants];
  return gguf({ 'general.architecture': ['string', 'llama'], ...metadata }, [
    { name: 'plain', dims: [4, 3], type: 0, offset: 0 },
    { name: 'packed', dims: [32, 2], type: 8, offset: 64 },
  ], concat([f32, new Uint8Array(16), q8]));
}
