// What every kernel shares: the parameter block of the batch (bridge.plan.batch) and the grid.
// Binding 0 is the step's Dims, a uniform block that never changes; binding 1 the batch; the others are the kernel's own.

@group(0) @binding(1) var<storage, read> batch: array<u32>;

// Words of the batch. N_TOKENS and N_OUTPUTS are what a kernel's `rows_word` names.
const N_TOKENS: u32 = 0u;
const FIRST_POSITION: u32 = 1u;
const N_OUTPUTS: u32 = 2u;
const TOKEN_IDS: u32 = 3u;
const OUTPUT_ROWS: u32 = 4u;
const ROPE_TABLES: u32 = 5u;
const SELECTION: u32 = 12u;
const TEXTS: u32 = 13u;
const STATE_READ: u32 = 14u;
const STATE_WRITTEN: u32 = 15u;

// The first row of the text that a token's row is in, and the one after its last.
fn text_begin(row: u32) -> u32 { return batch[batch[TEXTS] + 2u * row]; }
fn text_end(row: u32) -> u32 { return batch[batch[TEXTS] + 2u * row + 1u]; }

// The x of the grid; what is more than a dispatch may have in one dimension is folded into z.
fn column_of(workgroup: vec3<u32>) -> u32 {
  return workgroup.x + workgroup.z * MAX_WORKGROUPS;
}
