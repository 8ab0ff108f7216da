// The lattice points that indices of the IQ formats stand for, as bytes, four components to a word.
@group(0) @binding(GRID_BINDING) var<storage, read> grid: array<u32>;

fn pair_of(index: u32) -> vec2<u32> { return vec2<u32>(grid[index * 2u], grid[index * 2u + 1u]); }
