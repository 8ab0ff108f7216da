//@ include formats/codebook.wgsl
// kvalues_iq4nl of ggml-common.h.
const VALUES_0: u32 = 0xbfad9881u;  // -127 -104  -83  -65
const VALUES_4: u32 = 0xf6eaddcfu;  //  -49  -35  -22  -10
const VALUES_8: u32 = 0x26190d01u;  //    1   13   25   38
const VALUES_12: u32 = 0x71594535u;  //   53   69   89  113
