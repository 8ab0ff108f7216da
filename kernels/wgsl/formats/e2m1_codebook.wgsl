//@ include formats/codebook.wgsl
// E2M1 of the OCP microscaling formats 1.0, doubled to be integers.
const VALUES_0: u32 = 0x03020100u;  // 0 1 2 3
const VALUES_4: u32 = 0x0c080604u;  // 4 6 8 12
const VALUES_8: u32 = 0xfdfeff00u;  // 0 -1 -2 -3
const VALUES_12: u32 = 0xf4f8fafcu;  // -4 -6 -8 -12
