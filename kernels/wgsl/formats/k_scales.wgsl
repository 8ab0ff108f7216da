// Scale and minimum j of the eight that Q4_K and Q5_K pack as 6-bit numbers into 12 bytes, here three words.
fn scale_and_minimum(words: vec3<u32>, j: u32) -> vec2<f32> {
  let shifted = words >> vec3<u32>((j & 3u) * 8u);
  let a = shifted.x;
  let b = shifted.y;
  let c = shifted.z;
  if (j < 4u) { return vec2<f32>(f32(a & 63u), f32(b & 63u)); }
  return vec2<f32>(f32((c & 15u) | ((a >> 2u) & 48u)), f32(((c >> 4u) & 15u) | ((b >> 2u) & 48u)));
}
