// The activations of bridge.graph.graph.ACTIVATIONS. The clamps keep exp and tanh where every implementation is finite;
// beyond them the result is the same in float32.

fn act_exp(x: vec4<f32>) -> vec4<f32> { return exp(clamp(x, vec4<f32>(-87.0), vec4<f32>(88.0))); }
fn act_sigmoid(x: vec4<f32>) -> vec4<f32> { return 1.0 / (1.0 + exp(min(-x, vec4<f32>(87.0)))); }
fn act_silu(x: vec4<f32>) -> vec4<f32> { return x / (1.0 + exp(min(-x, vec4<f32>(87.0)))); }
fn act_tanh(x: vec4<f32>) -> vec4<f32> { return tanh(clamp(x, vec4<f32>(-15.0), vec4<f32>(15.0))); }
fn act_sqrt(x: vec4<f32>) -> vec4<f32> { return sqrt(max(x, vec4<f32>(0.0))); }
fn act_relu(x: vec4<f32>) -> vec4<f32> { return max(x, vec4<f32>(0.0)); }

fn act_relu2(x: vec4<f32>) -> vec4<f32> {
  let positive = max(x, vec4<f32>(0.0));
  return positive * positive;
}

// The tanh form (Hendrycks & Gimpel, arXiv 1606.08415), with sqrt(2/π).
fn act_gelu(x: vec4<f32>) -> vec4<f32> {
  return 0.5 * x * (1.0 + act_tanh(0.7978845608 * x * (1.0 + 0.044715 * x * x)));
}

fn act_gelu_quick(x: vec4<f32>) -> vec4<f32> { return x * act_sigmoid(1.702 * x); }

// max(x, 0) + ln(1 + e), e = exp(-|x|), by the series of 2 artanh(e / (2 + e)): log is imprecise near 1.
fn act_softplus(x: vec4<f32>) -> vec4<f32> {
  let e = act_exp(-abs(x));
  let s = e / (2.0 + e);
  let s2 = s * s;
  let series = 1.0 + s2 * (1.0 / 3.0 + s2 * (0.2 + s2 * (1.0 / 7.0 + s2 * (1.0 / 9.0 + s2 * (1.0 / 11.0 + s2 / 13.0)))));
  return max(x, vec4<f32>(0.0)) + 2.0 * s * series;
}
