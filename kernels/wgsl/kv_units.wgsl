// The kv cache, read by units of neighbouring columns, two or four, and written by groups: units, or the blocks of quantised
// types. Functions count units or groups from the beginning of the cache.
//@ if UNIT_OF_4
alias Unit = vec4<f32>;
//@ else
alias Unit = vec2<f32>;
//@ end

//@ include cache/${K_TYPE}.wgsl with side=k SIDE=K
//@ include cache/${V_TYPE}.wgsl with side=v SIDE=V
