"""Fused steps on a device against the unfused reference, and how many dispatches are left."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from bridge.gguf import open_gguf
from bridge.gpu.calls import Call, CallBuilder, Choice
from bridge.gpu.device import Limits
from bridge.gpu.selection import selection_calls
from bridge.gpu.steps import calls_of
from bridge.gpu.tuning import HARDWARE, SOFTWARE, TileShape, with_bytes, with_subgroups
from bridge.gpu.weights import place_weights
from bridge.graph import GraphBuilder, RopeTable, cache
from bridge.graph.cache import CacheLayout
from bridge.graph.graph import ALL
from bridge.models import build_graph
from bridge.plan import lower
from bridge.runtime import LoadOptions, load_model
from tests.golden import MODELS, real_model
from tests.gpu.harness import Tensors, assert_close, run

N_VOCAB = 40


class Layer:
    """A decoder of one layer over random tensors, and the knobs that change its fused steps."""

    def __init__(self, *, n_embd=64, n_ff=96, heads=(4, 2, 16, 16), rotated=(16, 16), style="norm",
                 qk_norm=(False, False), biases=(), types=None, post_norm=False, act="silu", mlp="gated", whole=False) -> None:
        n_head, n_head_kv, head_dim, head_dim_v = heads
        tensors, types = Tensors(), {"": "F32"} | (types or {})
        sizes = {"q": (n_head * head_dim, n_embd), "k": (n_head_kv * head_dim, n_embd),
                 "v": (n_head_kv * head_dim_v, n_embd), "o": (n_embd, n_head * head_dim_v),
                 "gate": (n_ff, n_embd), "up": (n_ff, n_embd), "down": (n_embd, n_ff),
                 "output": (N_VOCAB, n_embd)}
        sizes |= {"qkv": (sum(sizes[name][0] for name in "qkv"), n_embd), "gate_up": (2 * n_ff, n_embd)}
        for name, shape in sizes.items():
            type_name = types.get(name, types[""])
            if type_name in ("F32", "F16", "BF16"):
                tensors.add_normal(f"{name}.weight", *shape, type_name=type_name)
            else:
                tensors.add_blocks(f"{name}.weight", type_name, *shape)
        for name in biases:
            tensors.add_normal(f"{name}.bias", sizes[name][0], type_name="F16" if name == "k" else "F32")
        for name, width in {"norm1": n_embd, "norm2": n_embd, "norm3": n_embd, "post": n_embd, "q_norm": head_dim,
                            "k_norm": head_dim}.items():
            tensors.add_normal(f"{name}.weight", width)
        tensors.add_normal("embd", N_VOCAB, n_embd)
        b = GraphBuilder(tensors.infos)
        x = b.embed("embd", N_VOCAB, n_embd)
        y = b.rms_norm(x, "norm1", 1e-5)
        if whole:
            q, k, v = self._cut(b, b.matmul(y, "qkv", sizes["qkv"][0]), *(sizes[name][0] for name in "qkv"))
        else:
            q, k, v = (b.matmul(y, name, sizes[name][0]) for name in "qkv")
        sides = []
        for side, name, normed, n_rot in zip((q, k), "qk", qk_norm, rotated, strict=True):
            side = b.rms_norm(side, f"{name}_norm", 1e-5, head_dim) if normed else side
            if n_rot:
                side = b.rope(side, b.rope_table(f"table {n_rot}", RopeTable(n_rot, 100.0)), head_dim, style)
            sides.append(side)
        y = b.attention(*sides, v, n_head=n_head, n_head_kv=n_head_kv, head_dim=head_dim, head_dim_v=head_dim_v, scale=0.1)
        y = b.matmul(y, "o", n_embd)
        x = b.add(b.rms_norm(y, "post", 1e-5), x) if post_norm else b.add(y, x)
        y = b.rms_norm(x, "norm2", 1e-5)
        if mlp == "plain":
            y = b.activate(b.matmul(y, "up", n_ff), act)
        elif whole:
            y = b.glu(*self._cut(b, b.matmul(y, "gate_up", 2 * n_ff), n_ff, n_ff), act)
        else:
            y = b.glu(b.matmul(y, "gate", n_ff), b.matmul(y, "up", n_ff), act)
        x = b.select_outputs(b.add(b.matmul(y, "down", n_embd), x))
        self.graph = b.finish(b.matmul(b.rms_norm(x, "norm3", 1e-5), "output", N_VOCAB), n_embd)
        self.tensors = tensors

    @staticmethod
    def _cut(b, x, *widths):
        return [b.columns(x, sum(widths[:i]), width) for i, width in enumerate(widths)]


LAYERS = {
    "floats": {},
    "halves with tails": {"n_embd": 34, "n_ff": 22, "heads": (3, 1, 10, 6), "rotated": (10, 6), "types": {"": "F16"}},
    "normed heads": {"style": "neox", "qk_norm": (True, True), "rotated": (16, 16), "post_norm": True, "act": "gelu"},
    "one head normed, one not rotated": {"style": "neox", "qk_norm": (False, True), "rotated": (8, 0)},
    "biases": {"biases": ("q", "k", "v", "gate", "up", "o"), "types": {"": "F16"}, "heads": (4, 4, 16, 8)},
    "whole tensors": {"whole": True, "types": {"": "Q8_0"}, "biases": ("qkv", "gate_up"), "act": "gelu"},
    "no gate": {"mlp": "plain", "act": "relu2", "biases": ("up",)},
    "one bias of three": {"biases": ("k", "up")},
    "q8_0": {"types": {"": "Q8_0"}},
    "two formats": {"types": {"": "Q5_0", "v": "Q8_0", "down": "Q4_1", "up": "Q5_0"}},
    "two formats with biases": {"types": {"": "F16", "q": "Q4_1"}, "biases": ("q", "v")},
    "three formats": {"types": {"": "Q4_0", "k": "Q8_0", "v": "Q5_1"}},
    "gate and up differ": {"types": {"": "Q4_0", "up": "Q8_0"}},
    "rows of odd numbers of halves": {"types": {"": "Q4_0", "down": "F16", "o": "F16"}, "n_embd": 96, "n_ff": 34,
                                      "heads": (1, 1, 2, 2), "rotated": (2, 2), "act": "relu2"},
    "super-blocks": {"n_embd": 256, "n_ff": 256, "heads": (2, 1, 128, 128), "rotated": (128, 128), 
                     "types": {"": "Q4_K", "v": "Q6_K"}},
    "a grid beside another format": {"n_embd": 256, "heads": (2, 1, 128, 128), "rotated": (128, 128),
                                     "types": {"": "IQ3_XXS", "v": "Q4_K", "down": "F32"}},
    "a grid": {"n_embd": 256, "n_ff": 256, "heads": (2, 1, 128, 128), "rotated": (128, 128), "types": {"": "IQ2_XXS"}},
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_fused_layer_equals_the_reference(device, tuning, name):
    """The first batch has its norms apart, the others, of one and three tokens, inside their products."""
    layer = Layer(**LAYERS[name])
    got, expected = run(device, layer.graph, layer.tensors, [([1, 2, 3, 4, 5, 6, 7], 0), ([8], 7), ([9, 10, 11], 8)],
                        tuning=replace(tuning, rules=HARDWARE.rules, norm_apart=8))
    assert_close(got, expected, 3e-5)


TILES = {products: TileShape(64, 4, 4, 32, from_rows=2, products=products, blocks=1 + (products == "int8"))
         for products in ("f32", "f16", "int8")}


@pytest.mark.parametrize("name, products, tolerance", [
    *((name, "f32", 3e-5) for name in LAYERS),
    *((name, products, tolerance) for products, tolerance in (("f16", 3e-3), ("int8", 3e-2))
      for name in ("halves with tails", "two formats with biases", "whole tensors", "super-blocks", "a grid")),
])
def test_a_fused_layer_in_tiles(device, name, products, tolerance):
    layer = Layer(**LAYERS[name])
    shapes = *HARDWARE.matmul[:1], replace(TILES["f32"], from_rows=1), TILES[products]
    tuning = replace(HARDWARE, matmul=shapes, norm_apart=1)
    got, expected = run(device, layer.graph, layer.tensors, [([1, 2, 3, 4, 5, 6, 7], 0), ([9, 10, 11], 7)], tuning=tuning)
    assert_close(got, expected, tolerance)


@pytest.mark.parametrize("name", ["two formats", "whole tensors", "super-blocks", "a grid beside another format"])
def test_a_fused_layer_in_bytes(device, name):
    """Norms are inside the products for one and three tokens."""
    if device.info.subgroup_min_size < 8:
        pytest.skip("this adapter has no subgroups of at least 8")
    layer = Layer(**LAYERS[name])
    got, expected = run(device, layer.graph, layer.tensors, [([1, 2, 3], 0), ([8], 3)],
                        tuning=with_bytes(with_subgroups(HARDWARE)))
    assert_close(got, expected, 3e-2)


@pytest.mark.parametrize("n_rows, parts", [(40, {"q": 2, "k": 1, "v": 1, "gate": 5}),
                                           (70, {"q": 1, "k": 1, "gate": 3})])
def test_weights_above_the_binding_limit(device, tuning, monkeypatch, n_rows, parts):
    """q, k and v share a buffer as far as it goes; gate and up are split into the same rows."""
    layer, limits = Layer(biases=("gate", "up", "k")), Limits(max_storage_buffer_binding_size=4 * 64 * n_rows)
    plan = lower(layer.graph, HARDWARE.rules)
    placed = place_weights(plan, limits)
    found = {matrix.name.split(".")[0]: len(matrix.parts) for matrix in placed.matrices.values()}
    assert {name: n for name, n in found.items() if name in ("q", "k", "v", "gate")} == parts
    monkeypatch.setattr("bridge.gpu.session.place_weights", lambda plan, _: place_weights(plan, limits))
    got, expected = run(device, layer.graph, layer.tensors, [([1, 2, 3], 0), ([4], 3)],
                        tuning=replace(tuning, rules=HARDWARE.rules))
    assert_close(got, expected, 3e-5)


def test_kernels_need_no_more_than_every_adapter_has():
    core = Limits()
    for options in LAYERS.values():
        plan = lower(Layer(**options).graph, HARDWARE.rules)
        cache = CacheLayout(plan.kv_layers, 64, 64, "f16", "f16")
        builder = CallBuilder(plan, place_weights(plan, core), HARDWARE, cache=cache, max_workgroups=65535)
        calls = [call for step in plan.steps for call in calls_of(builder, step)]
        pipelines = [choice.pipeline for call in calls for choice in call.choices]
        assert max(len(p.bindings) - p.bindings.count("uniform") for p in pipelines) <= (
            core.max_storage_buffers_per_shader_stage)


def test_larger_batches_have_norms_of_their_own():
    layer = Layer()
    plan = lower(layer.graph, HARDWARE.rules)
    builder = CallBuilder(plan, place_weights(plan, Limits()), HARDWARE, max_workgroups=65535,
                          cache=CacheLayout(plan.kv_layers, 64, 64, "f16", "f16"))
    calls = [call for step in plan.steps_for("logits") for call in calls_of(builder, step)]
    for n_rows, n_norms in ((1, 0), (HARDWARE.norm_apart - 1, 0), (HARDWARE.norm_apart, 3)):
        taken = [call for call in calls if call.takes(n_rows)]
        norms = [call for call in taken if call.choices[0].pipeline.file == "norm.wgsl"]
        inside = [call for call in taken if dict(call.choices[0].pipeline.values).get("NORM")]
        assert (len(norms), len(inside)) == (n_norms, 3 - n_norms)
        assert all(call.operands[-1] not in call.operands[:-1] for call in norms)


def dispatches(path, tuning, n_past=0):
    """(in the layers, outside) for one token of a model and what is best after it, with the limits that every device has."""
    with open_gguf(path) as file:
        graph = build_graph(file.metadata, file.tensors, 4096)
    plan = lower(graph, tuning.rules)
    cache = CacheLayout(plan.kv_layers, 4096, 64, "f16", "f16")
    builder = CallBuilder(plan, place_weights(plan, Limits()), tuning, cache=cache, max_workgroups=65535)
    names = [call.name for step in plan.steps_for("logits") for call in calls_of(builder, step)
             if call.takes(1, tuning.splits_of(n_past + 1))]
    # "outputs …" are the selected rows of the last layer, "output_norm" and "output" the head.
    n_outside = sum(name.startswith(("token_embd", "output")) for name in names)
    return (len(names) - n_outside) / len(graph.kv_layers), n_outside + len(selection_calls(builder))


@pytest.mark.parametrize("name, in_layer, outside", [("qwen3-f16", 6, 6), ("llama-untied-f16", 6, 6),
                                                     ("phi3-q8_0", 6, 6), ("gemma3-f16", 8, 6)])
def test_dispatches_of_tiny_models(name, in_layer, outside):
    assert dispatches(MODELS / f"{name}.gguf", HARDWARE) == (in_layer, outside)
    # Software adapters keep the norms apart (bridge.gpu.tuning).
    assert dispatches(MODELS / f"{name}.gguf", SOFTWARE) == (in_layer + 2, outside + 1)


@pytest.mark.parametrize("name, in_layer, outside", [("smollm2", 6, 6), ("gemma3", 8, 8)])
def test_dispatches_of_real_models(name, in_layer, outside):
    """Gemma's embedding is above the binding limit of many devices and comes in two parts."""
    assert dispatches(real_model(name), HARDWARE) == (in_layer, outside)
    if name == "smollm2":  # far into a context the shares of attention are merged
        assert [dispatches(real_model(name), HARDWARE, n_past) for n_past in (255, 256, 2048)] == [(6, 6), (7, 6), (7, 6)]


async def _logits(backend, name, tokens, devices=None, **options):
    options = LoadOptions(n_ctx=256, backend=backend, **options)
    model = await load_model(str(MODELS / f"{name}.gguf"), options, devices=devices)
    try:
        return await model.evaluate(tokens), model.kv_type
    finally:
        await model.close()


@pytest.mark.parametrize("name, options", [
    ("quant-llama-Q6_K", {"kv_type": "q8_0"}), ("quant-llama-Q6_K", {"kv_type": "q4_0/q8_0"}),
    ("gemma3-f16", {"kv_type": "f32", "n_ubatch": 8}),  # windows of 16, whose rings have 32 rows
])
def test_fused_heads_write_quantised_caches_and_rings(device, monkeypatch, name, options):
    """Against the reference, which keeps every row."""
    tokens = [(7 * i) % 300 + 5 for i in range(70)]

    async def devices():
        return device

    monkeypatch.setattr(cache, "REWIND", 8)
    got, kv_type = asyncio.run(_logits("webgpu", name, tokens, devices, **options))
    assert kv_type == options["kv_type"]
    expected, _ = asyncio.run(_logits("reference", name, tokens, **options | {"n_ubatch": 256}))
    # A code that goes the other way moves a logit by about what the codes are apart.
    assert np.abs(got - expected).max() / np.std(expected) < (1e-4 if kv_type == "f32" else 0.1)


def test_a_call_for_some_batches_has_the_kernels_that_those_take():
    call = Call("c", tuple(Choice(n, 1, f"from {n}", n) for n in (1, 4, 9, 40)), b"", (), "tokens")
    for rows_from, rows_below, kept in ((1, 9, (1, 4)), (9, ALL, (9, 40)), (5, 9, (4,)), (3, 41, (1, 4, 9, 40))):
        part = call.between(rows_from, rows_below)
        assert [choice.from_rows for choice in part.choices] == list(kept)
        for n_rows in (rows_from, min(rows_below, 100) - 1):
            assert part.takes(n_rows) and part.choose(n_rows) == call.choose(n_rows)
        assert not part.takes(rows_from - 1) and not part.takes(rows_below)
