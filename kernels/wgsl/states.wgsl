// The state before the batch and after it: two copies of `state_width` floats, of which the batch names one to read and
// one to write, which may be the same. At position 0 the state is zero.

fn state_before(i: u32) -> f32 {
  if (batch[FIRST_POSITION] == 0u) { return 0.0; }
  return state[batch[STATE_READ] * dims.state_width + i];
}

fn set_state_after(i: u32, value: f32) { state[batch[STATE_WRITTEN] * dims.state_width + i] = value; }

// Four elements `step` apart.
fn quad_before(i: u32, step: u32) -> vec4<f32> {
  return vec4<f32>(state_before(i), state_before(i + step), state_before(i + 2u * step), state_before(i + 3u * step));
}

fn set_quad_after(i: u32, step: u32, values: vec4<f32>) {
  set_state_after(i, values.x);
  set_state_after(i + step, values.y);
  set_state_after(i + 2u * step, values.z);
  set_state_after(i + 3u * step, values.w);
}
