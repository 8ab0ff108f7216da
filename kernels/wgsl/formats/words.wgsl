// The words of `weight`. With WIDE it is bound as vec4s, since rows and blocks begin at multiples of 16 bytes, and hardware
// loads four words at once; without, four words may begin anywhere.
//@ if WIDE
fn word(i: u32) -> u32 { return weight[i >> 2u][i & 3u]; }
fn four_words(i: u32) -> vec4<u32> { return weight[i >> 2u]; }
//@ else
fn word(i: u32) -> u32 { return weight[i]; }
fn four_words(i: u32) -> vec4<u32> { return vec4<u32>(weight[i], weight[i + 1u], weight[i + 2u], weight[i + 3u]); }
//@ end
