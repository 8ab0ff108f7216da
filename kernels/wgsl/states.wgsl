// The state before the batch and after it: two copies of `state_width` floats, of which the batch names one to read and
// one to write, which may be the same. At position 0 the state is zero.

fn state_before(i: u32) -> f32 {
  if (batch[FIRST_POSITION] == 0u) { return 0.0; }
  return state[batch[STATE_READ] * dims.state_width + i];
}

fn set_state_after(i: u32, value: f32) { state[batch[STATE_WRITTEN] * dims.state_width + i] = value; }
