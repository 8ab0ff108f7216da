// ${SIDE} as floats.
alias ${SIDE}Element = Unit;

fn load_${side}(at: u32) -> Unit { return ${side}_cache[at]; }
//@ if WRITES
fn store_${side}(at: u32, columns: ptr<function, array<f32, ${SIDE}_GROUP>>) { ${side}_cache[at] = ${side}_unit_of(columns); }
//@ include cache/unit_of.wgsl
//@ end
