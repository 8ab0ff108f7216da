// The words of `weight`. With WIDE it is bound as vec4s, of which one costs little more to load than a word: on hardware where
// rows and blocks are ALIGNED, beginning at multiples of 16 bytes, on software adapters wherever they begin.

struct Words { a: vec4<u32>, b: vec4<u32>, c: u32 }

//@ if WIDE
fn word(i: u32) -> u32 { return weight[i >> 2u][i & 3u]; }
//@ if ALIGNED
fn four_words(i: u32) -> vec4<u32> { return weight[i >> 2u]; }
//@ else
fn four_words(i: u32) -> vec4<u32> { return five_words(i).a; }
//@ end

fn five_words(i: u32) -> Words { return words_from(i, weight[i >> 2u], weight[(i >> 2u) + 1u], vec4<u32>(0u)); }

fn six_words(i: u32) -> Words {
  let five = five_words(i);
  return Words(five.a, vec4<u32>(five.b.x, word(i + 5u), 0u, 0u), 0u);
}

fn nine_words(i: u32) -> Words {
  return words_from(i, weight[i >> 2u], weight[(i >> 2u) + 1u], weight[(i >> 2u) + 2u]);
}

// The words from word `i` on, of three vec4s of which the first holds it.
fn words_from(i: u32, p: vec4<u32>, q: vec4<u32>, r: vec4<u32>) -> Words {
  let is_odd = (i & 1u) != 0u;
  let is_upper = (i & 2u) != 0u;
  let a = select(p, vec4<u32>(p.yzw, q.x), is_odd);
  let b = select(q, vec4<u32>(q.yzw, r.x), is_odd);
  let c = select(r.xyz, r.yzw, is_odd);
  return Words(select(a, vec4<u32>(a.zw, b.xy), is_upper), select(b, vec4<u32>(b.zw, c.xy), is_upper),
               select(c.x, c.z, is_upper));
}
//@ else
fn word(i: u32) -> u32 { return weight[i]; }
fn four_words(i: u32) -> vec4<u32> { return vec4<u32>(weight[i], weight[i + 1u], weight[i + 2u], weight[i + 3u]); }
fn five_words(i: u32) -> Words { return Words(four_words(i), vec4<u32>(weight[i + 4u], 0u, 0u, 0u), 0u); }
fn six_words(i: u32) -> Words { return Words(four_words(i), vec4<u32>(weight[i + 4u], weight[i + 5u], 0u, 0u), 0u); }
fn nine_words(i: u32) -> Words { return Words(four_words(i), four_words(i + 4u), weight[i + 8u]); }
//@ end
