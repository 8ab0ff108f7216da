"""What WebGPU promises everywhere suffices: 8 storage buffers, 16 KiB for a workgroup, 256 invocations, 128 MiB bindings."""

import re

import pytest

from bridge.gguf import open_gguf
from bridge.gpu.calls import CallBuilder
from bridge.gpu.device import Limits
from bridge.gpu.steps import calls_of
from bridge.gpu.tuning import HARDWARE, SOFTWARE, with_products
from bridge.gpu.weights import place_weights
from bridge.gpu.wgsl import kernel_source
from bridge.graph.cache import CacheLayout, cache_types
from bridge.models import build_graph
from bridge.plan import lower
from bridge.runtime.load import possible_cache
from tests.golden import MODELS
from tests.gpu.wgsl_usage import usage_of

CORE = Limits()
_BINDING = re.compile(r"@group\(0\) @binding\((\d+)\)")


def pipelines_of(path, tuning, kv_type="f16"):
    """Every pipeline that a model's plan may use."""
    with open_gguf(path) as file:
        graph = build_graph(file.metadata, file.tensors, 512, None)
    plan = lower(graph, tuning.rules)
    cache = CacheLayout(plan.kv_layers, 512, 64, *cache_types(possible_cache(kv_type, graph)))
    builder = CallBuilder(plan, place_weights(plan, CORE), tuning, cache=cache,
                          max_workgroups=CORE.max_compute_workgroups_per_dimension)
    return {choice.pipeline for step in plan.steps for call in calls_of(builder, step) for choice in call.choices}


@pytest.mark.parametrize("tuning", [SOFTWARE, HARDWARE, with_products(HARDWARE, "f16"), with_products(HARDWARE, "int8")],
                         ids=["software", "hardware", "halves", "bytes"])
def test_no_pipeline_of_any_model_takes_more_than_every_device_has(tuning):
    pipelines = set()
    for path in sorted(MODELS.glob("*.gguf")):
        pipelines |= pipelines_of(path, tuning)
    for name in ("llama-tied-f32.gguf", "gemma3-f16.gguf"):
        for kv_type in ("f32", "q8_0", "q4_0/q8_0"):
            pipelines |= pipelines_of(MODELS / name, tuning, kv_type)
    assert len(pipelines) > 100
    for pipeline in pipelines:
        source = kernel_source(pipeline.file, dict(pipeline.values))
        usage = usage_of(source)
        assert usage.storage_buffers <= CORE.max_storage_buffers_per_shader_stage, pipeline.label
        assert usage.workgroup_nbytes <= CORE.max_compute_workgroup_storage_size, pipeline.label
        assert usage.invocations <= CORE.max_compute_invocations_per_workgroup, pipeline.label
        # A layout counts what it names, whether or not the kernel does.
        assert sum(kind != "uniform" for kind in pipeline.bindings) <= CORE.max_storage_buffers_per_shader_stage
        assert max(map(int, _BINDING.findall(source))) < len(pipeline.bindings)


def test_what_a_source_takes_is_read_from_its_text():
    usage = usage_of("""
const WORKGROUP: u32 = 64u;
const SUMS: u32 = (3u + 1u) * WORKGROUP;
alias Unit = vec4<f32>;
@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(1) var<storage, read> x: array<u32>;  // var<storage> once more
@group(0) @binding(2) var<storage, read_write> y: array<u32>;
var<workgroup> sums: array<Unit, SUMS>;
var<workgroup> halves: array<vec2<f16>, 3>;
var<workgroup> count: atomic<u32>;
@compute @workgroup_size(WORKGROUP, 2)
fn main() {}
""")
    assert (usage.storage_buffers, usage.uniform_buffers, usage.invocations) == (2, 1, 128)
    assert usage.workgroup_nbytes == 256 * 16 + 16 + 16
