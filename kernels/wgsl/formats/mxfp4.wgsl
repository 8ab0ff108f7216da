// MXFP4: a byte e, 16 bytes of nibbles (element i low, element 16 + i high) that index doubled E2M1 values;
// 2^(e - 128) * value. Blocks of 17 bytes begin anywhere in a word.
//@ include formats/bytes.wgsl
//@ include formats/e2m1_codebook.wgsl
const BLOCK_BYTES: u32 = 17u;

fn load_group(row: u32, i: u32) -> Group {
  let at = row + i * BLOCK_BYTES;
  let first = (at + 1u) >> 2u;
  let shift = ((at + 1u) & 3u) * 8u;
  let words = five_words(first);
  var quants = words.a;
  if (shift != 0u) {
    quants = (quants >> vec4<u32>(shift)) | (vec4<u32>(quants.yzw, words.b.x) << vec4<u32>(32u - shift));
  }
  // The exponent field of 2^(e - 128) is e - 1; what would be subnormal becomes 0.
  let scale = bitcast<f32>((max(byte_at(at), 1u) - 1u) << 23u);
  return Group(scale, values_of(low_nibbles(quants)), values_of(high_nibbles(quants)));
}
