// TQ1_0: trits, d * (trit - 1), five to a byte: 32 bytes of elements 0-159 (trit k of byte m is element 32 * k + m), 16
// bytes of elements 160-239, 4 bytes of four trits of elements 240-255, half d.
// A byte is its base-3 number times 256/243, rounded up: times 3^k modulo 256 brings trit k to the top, where it is the
// upper byte of three times that (dequantize_row_tq1_0).
//@ include formats/bytes.wgsl
const BLOCK_BYTES: u32 = 54u;
const POWERS = vec4<u32>(1u, 3u, 9u, 27u);

fn trits(words: vec4<u32>, powers: vec4<u32>) -> vec4<u32> {
  let every_second = vec4<u32>(0x00ff00ffu);
  let even = (((words & every_second) * powers) & every_second) * vec4<u32>(3u);
  let odd = ((((words >> vec4<u32>(8u)) & every_second) * powers) & every_second) * vec4<u32>(3u);
  return ((even >> vec4<u32>(8u)) & every_second) | (odd & vec4<u32>(0xff00ff00u));
}

fn power_of_three(k: u32) -> u32 {
  var power = 1u;
  for (var n = 0u; n < k; n++) { power *= 3u; }
  return power;
}

fn load_group(row: u32, i: u32) -> Group {
  let at = row + (i >> 4u) * BLOCK_BYTES;
  let s = i & 15u;
  let d = half_at(at + 52u);
  if (s == 15u) { return Group(d, -d, trits(vec4<u32>(word_at(at + 48u)), POWERS)); }
  let is_first_part = s < 10u;
  let k = select(s - 10u, s >> 1u, is_first_part);
  let quants = at + select(32u, (s & 1u) * 16u, is_first_part);
  return Group(d, -d, trits(words_at(quants), vec4<u32>(power_of_three(k))));
}
