"""Every operation of the plan on the device against the numpy reference."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from bridge.errors import InputError, UnsupportedError
from bridge.gpu.device import SUBGROUPS
from bridge.gpu.tuning import HARDWARE, LaneShape
from bridge.graph import RopeTable, cache
from bridge.graph.graph import ACTIVATIONS
from tests.graph import attention_operations, elementwise, expert_operations
from tests.gpu.harness import OneOperation, assert_close, open_session, reference_of, run

RNG = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def same_numbers_whatever_ran_before():
    RNG.bit_generator.state = np.random.default_rng(7).bit_generator.state



def rows(n, width):
    return RNG.standard_normal((n, width)).astype(np.float32)


@pytest.mark.parametrize("n_tokens", [1, 2, 3, 8])
def test_rows_of_any_batch_size(device, tuning, n_tokens):
    op = OneOperation(rows(8, 32))
    op.tensors.add_normal("w.weight", 50, 32)
    graph = op.finish(op.builder.matmul(op.x(), "w", 50))
    got, expected = run(device, graph, op.tensors, [(list(range(n_tokens)), 0)], tuning=tuning)
    assert_close(got, expected)


# Widths that are no multiple of a group of 8 or 16, nor even of 4.
@pytest.mark.parametrize("n_in", [2, 6, 24, 34, 80, 96, 126])
@pytest.mark.parametrize("type_name", ["F32", "F16", "BF16"])
def test_matmul_of_any_even_width(device, tuning, type_name, n_in):
    op = OneOperation(rows(5, n_in))
    op.tensors.add_normal("w.weight", 37, n_in, type_name=type_name)
    graph = op.finish(op.builder.matmul(op.x(), "w", 37))
    got, expected = run(device, graph, op.tensors, [([4, 0, 2], 0)], tuning=tuning)
    assert_close(got, expected)


@pytest.mark.parametrize("type_name", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("residual", [False, True])
def test_matmul_with_bias_and_residual(device, tuning, residual, type_name):
    op = OneOperation(rows(4, 48))
    op.tensors.add_normal("w.weight", 48, 48)
    op.tensors.add_normal("w.bias", 48, type_name=type_name)
    x = op.x()
    product = op.builder.matmul(x, "w", 48)
    graph = op.finish(op.builder.add(product, x) if residual else product)
    got, expected = run(device, graph, op.tensors, [([0, 1, 2, 3], 0)], tuning=tuning)
    assert_close(got, expected)


@pytest.mark.parametrize("width, group", [(64, 64), (66, 66), (2304, 2304), (96, 24), (128, 16)])
def test_rms_norm(device, tuning, width, group):
    op = OneOperation(rows(3, width) * 30)
    op.tensors.add_normal("norm.weight", group)
    graph = op.finish(op.builder.rms_norm(op.x(), "norm", 1e-6, group))
    got, expected = run(device, graph, op.tensors, [([0, 1, 2], 0)], tuning=tuning)
    assert_close(got, expected)


@pytest.mark.parametrize("style", ["norm", "neox"])
@pytest.mark.parametrize("head_dim, n_rot", [(16, 16), (24, 24), (80, 32), (10, 6)])
def test_rope(device, style, head_dim, n_rot):
    op = OneOperation(rows(4, 3 * head_dim))
    table = op.builder.rope_table("main", RopeTable(n_rot, 10000.0))
    graph = op.finish(op.builder.rope(op.x(), table, head_dim, style))
    got, expected = run(device, graph, op.tensors, [([0, 1, 2, 3], 41)])
    assert_close(got, expected)


def test_rope_tables_and_factors_of_their_own(device):
    op = OneOperation(rows(4, 32))
    op.tensors.add_floats("factors", np.linspace(1, 8, 8))
    first = op.builder.rope_table("local", RopeTable(16, 1e4))
    second = op.builder.rope_table("global", RopeTable(16, 1e6, factors_tensor="factors"))
    x = op.x()
    graph = op.finish(op.builder.add(op.builder.rope(x, first, 16, "neox"), op.builder.rope(x, second, 16, "norm")))
    got, expected = run(device, graph, op.tensors, [([3, 2, 1], 17)])
    assert_close(got, expected)


def attention_graph(op, n_head, n_head_kv, head_dim, head_dim_v, **attrs):
    x = op.x()
    for name, width in (("q", n_head * head_dim), ("k", n_head_kv * head_dim), ("v", n_head_kv * head_dim_v)):
        op.tensors.add_normal(f"{name}.weight", width, op.width)
    q, k, v = (op.builder.matmul(x, name, op.tensors.infos[f"{name}.weight"].shape[0]) for name in "qkv")
    attrs = {"scale": head_dim**-0.5 / 4} | attrs
    return op.finish(op.builder.attention(q, k, v, n_head=n_head, n_head_kv=n_head_kv, head_dim=head_dim,
                                          head_dim_v=head_dim_v, **attrs))


@pytest.mark.parametrize("kv_type, tolerance", [("f32", 1e-5), ("f16", 3e-3)])
@pytest.mark.parametrize("attrs", [{}, {"softcap": 2.0}, {"window": 5}, {"window": 3, "softcap": 1.5}])
def test_attention_over_several_batches(device, tuning, attrs, kv_type, tolerance):
    op = OneOperation(rows(16, 12))
    graph = attention_graph(op, 6, 2, 16, 16, **attrs)
    batches = [([1, 2, 3, 4, 5, 6, 7], 0), ([8, 9], 7), ([10], 9), ([11, 12, 13, 14, 15], 10)]
    got, expected = run(device, graph, op.tensors, batches, tuning=tuning, kv_type=kv_type)
    assert_close(got, expected, tolerance)


@pytest.mark.parametrize("kv_type", ["q8_0", "q4_0", "q8_0/f16", "f32/q4_0", "f16/f32"])
def test_caches_of_two_types_and_quantised_ones_are_the_references(device, tuning, kv_type):
    got, expected = asyncio.run(caches_after_comparing(device, tuning, kv_type))
    assert len(got) == len(expected)
    # Where a product ends on the border between two codes, its last bit decides; scales of halves differ no more.
    assert np.mean(got != expected) < 2e-3 or "f" in kv_type


async def caches_after_comparing(device, tuning, kv_type, *, saved=True):
    op = OneOperation(np.concatenate([rows(18, 12), np.zeros((1, 12), np.float32)]))
    graph = attention_graph(op, 4, 2, 32, 64)
    batches = [([0, 1, 2, 3, 4, 5], 0), ([9, 10, 18], 6), ([11], 9)]
    reference = reference_of(graph, op.tensors, kv_type=kv_type)

    session = await open_session(device, graph, op.tensors, kv_type=kv_type, tuning=tuning)
    for tokens, start in batches:
        got = np.array(await session.evaluate(tokens, start, range(len(tokens))))
        expected = await reference.evaluate(tokens, start, range(len(tokens)))
        assert_close(got.reshape(len(tokens), -1), expected.reshape(len(tokens), -1), 3e-3 if "f16" in kv_type else 1e-4)
    data = [await each.read_kv(10) for each in (session, reference)] if saved else []
    await session.close()
    return [np.frombuffer(each, np.uint8) for each in data]


def test_a_window_keeps_a_ring_of_rows(device, tuning, monkeypatch):
    """Against a reference that keeps every position; 32 rows are enough for 5 + max(8, 8) positions."""
    monkeypatch.setattr(cache, "REWIND", 8)
    op = OneOperation(rows(40, 12))
    graph = attention_graph(op, 4, 2, 8, 6, window=5)
    tokens = [t % 40 for t in range(80)]
    batches = [(tokens[at:at + 8], at) for at in range(0, 72, 8)] + [([7, 8, 9], 67), ([1], 70)]
    for end in (5, 9, 10, 11):
        assert_close(*run(device, graph, op.tensors, batches[:end], n_ctx=128, tuning=tuning))
    with pytest.raises(InputError, match="cannot start at position 50: .* it can start at 0 or from 65 on"):
        run(device, graph, op.tensors, [*batches[:9], ([1], 50)], n_ctx=128, tuning=tuning)


@pytest.mark.parametrize("n_head, n_head_kv, head_dim, head_dim_v", [(1, 1, 2, 2), (4, 4, 24, 24), (2, 1, 80, 80),
                                                                     (3, 1, 96, 96), (4, 2, 10, 6), (2, 2, 256, 256)])
def test_attention_heads(device, tuning, n_head, n_head_kv, head_dim, head_dim_v):
    op = OneOperation(rows(8, 8))
    graph = attention_graph(op, n_head, n_head_kv, head_dim, head_dim_v)
    got, expected = run(device, graph, op.tensors, [([0, 1, 2], 0), ([3, 4, 5, 6, 7], 3)], tuning=tuning)
    assert_close(got, expected)


def test_attention_over_many_positions(device, tuning):
    op = OneOperation(rows(32, 8))
    graph = attention_graph(op, 2, 1, 8, 8, scale=2.0)  # sharp: late positions raise the running maximum
    tokens = RNG.integers(0, 32, 330).tolist()
    batches = [(tokens[i:i + 8], i) for i in range(0, 330, 8)]
    got, expected = run(device, graph, op.tensors, batches, tuning=tuning, n_ctx=512)
    assert_close(got, expected)


# A head of keys shared by none, some, and more heads of queries than a workgroup takes; tiles cut to fit the memory.
@pytest.mark.parametrize("n_head, n_head_kv, head_dim", [(3, 3, 4), (14, 2, 4), (40, 1, 6), (20, 1, 320)])
def test_heads_that_share_keys(device, tuning, n_head, n_head_kv, head_dim):
    op = OneOperation(rows(16, 8))
    graph = attention_graph(op, n_head, n_head_kv, head_dim, 8, window=6)
    for batches in ([([0, 1, 2, 3, 4, 5, 6, 7], 0), ([8, 9, 10, 11, 12, 13, 14], 8)], [([0, 1, 2, 3], 0), ([4], 4)]):
        assert_close(*run(device, graph, op.tensors, batches, tuning=tuning))


@pytest.mark.parametrize("attrs", [{}, {"window": 7}, {"window": 40, "softcap": 2.0}])
@pytest.mark.parametrize("name", ["plain", "sinks"])
def test_positions_of_a_single_token_are_shared_out(device, tuning, name, attrs):
    """Three shares from 5 positions on, five from 20; a window of 7 never has five."""
    tuning = replace(tuning, attention_splits=((5, 3), (20, 5)))
    op = OneOperation(rows(16, attention_operations.WIDTH))
    build = attention_operations.projected(**attrs) if name == "plain" else attention_operations.sinks(**attrs)
    graph = op.finish(build(op.builder, op.x(), op.tensors, RNG))
    tokens = RNG.integers(0, 16, 48).tolist()
    batches = [(tokens[:3], 0), ([3], 3), ([4], 4), (tokens[5:13], 5), ([7], 13), (tokens[14:21], 14), ([8], 21)]
    for end in (2, 3, 5, 7):
        assert_close(*run(device, graph, op.tensors, batches[:end], tuning=tuning), 2e-5)


def test_a_position_may_be_written_again(device):
    op = OneOperation(rows(16, 12))
    graph = attention_graph(op, 2, 2, 8, 8)
    got, expected = run(device, graph, op.tensors, [([1, 2, 3, 4], 0), ([5, 6], 2)])
    assert_close(got, expected)


ON_ROWS = elementwise.CASES | expert_operations.CASES


@pytest.mark.parametrize("name", ON_ROWS)
def test_operation_on_rows(device, tuning, name):
    width, build = ON_ROWS[name]
    op = OneOperation(elementwise.inputs(name, width, 7, RNG))
    graph = op.finish(build(op.builder, op.x(), op.tensors, RNG))
    got, expected = run(device, graph, op.tensors, [(list(range(7)), 0)], tuning=tuning)
    assert_close(got, expected, 2e-6)
    if name in ACTIVATIONS:  # small values, too
        assert (np.abs(got - expected) <= 2e-6 * np.abs(expected) + 1e-6).all()


@pytest.mark.parametrize("name", attention_operations.CASES)
def test_attention_beyond_a_layer_of_its_own(device, tuning, name):
    op = OneOperation(rows(16, attention_operations.WIDTH))
    graph = op.finish(attention_operations.CASES[name](op.builder, op.x(), op.tensors, RNG))
    for end in range(1, len(attention_operations.BATCHES) + 1):
        assert_close(*run(device, graph, op.tensors, attention_operations.BATCHES[:end], tuning=tuning), 2e-5)


def test_embeddings_of_positions(device, tuning):
    op = OneOperation(rows(3, 34))
    op.tensors.add_floats("p", rows(20, 34))
    graph = op.finish(op.builder.add(op.x(), op.builder.embed_positions("p", 20, 34)))
    assert_close(*run(device, graph, op.tensors, [([2, 0, 1], 11)]))


@pytest.mark.parametrize("act", ["silu", "gelu"])
def test_glu_up_to_extreme_values(device, act):
    x = np.concatenate([rows(2, 30), [[-1e30, -2000, -100, -88, -10, 0, 10, 88, 100, 2000] * 3]]).astype(np.float32)
    op = OneOperation(x)
    op.tensors.add_floats("up.weight", np.eye(30))
    node = op.x()
    graph = op.finish(op.builder.glu(node, op.builder.matmul(node, "up", 30), act))
    # -1e30 * act(-1e30) overflows in the reference too, unless act is 0 there; keep finite rows apart.
    got, expected = run(device, graph, op.tensors, [([0, 1], 0)])
    assert_close(got, expected)
    got, expected = run(device, graph, op.tensors, [([2], 0)])
    finite = np.isfinite(expected) & (np.abs(x[2]) < 1e20)
    assert finite.sum() == 27 and np.isfinite(got).all()
    assert_close(got[:, finite[0]], expected[:, finite[0]])


def test_add_scale_and_softcap(device):
    op = OneOperation(np.concatenate([rows(2, 34) * 20, [[1e30, -1e30] * 17]]).astype(np.float32))
    x = op.x()
    graph = op.finish(op.builder.softcap(op.builder.scale(op.builder.add(x, x), 0.75), 30.0))
    got, expected = run(device, graph, op.tensors, [([0, 1, 2], 0)])
    assert_close(got, expected)


def test_embed_scales(device):
    op = OneOperation(rows(9, 50))
    graph = op.finish(op.builder.embed("x", 9, 50, scale=7.5))
    got, expected = run(device, graph, op.tensors, [([8, 0, 3, 3], 0)])
    assert_close(got, expected, 1e-7)


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("type_name", ["F16", "Q8_0"])
def test_mixture_of_experts(device, tuning, type_name, normalise):
    op = OneOperation(rows(6, 64))
    op.tensors.add_normal("router.weight", 7, 64)
    for name, n_out, n_in in (("up", 96, 64), ("down", 64, 96)):
        if type_name == "F16":
            op.tensors.add_normal(f"{name}.weight", 7, n_out, n_in, type_name="F16")
        else:
            op.tensors.add_blocks(f"{name}.weight", type_name, 7, n_out, n_in)
    b, x = op.builder, op.x()
    route = b.route(b.matmul(x, "router", 7), 3, normalise=normalise)
    up = b.matmul_experts(x, route, "up", 96)
    down = b.matmul_experts(up, route, "down", 64, per_expert=True)
    graph = op.finish(b.combine_experts(down, route))
    got, expected = run(device, graph, op.tensors, [([0, 1, 2, 3, 4, 5], 0)], tuning=tuning)
    assert_close(got, expected)


def test_route_prefers_the_lower_id_among_equals(device):
    op = OneOperation(np.array([[1, 3, 3, 2, 3, 0], [5, 5, 5, 5, 5, 5]], np.float32))
    graph = op.finish(op.builder.route(op.x(), 4, normalise=True))
    got, expected = run(device, graph, op.tensors, [([0, 1], 0)])
    assert got[:, :4].tolist() == [[1, 2, 4, 3], [0, 1, 2, 3]]
    assert_close(got, expected)


def test_what_no_kernel_takes_is_refused_by_name(device):
    op = OneOperation(rows(2, 9))
    with pytest.raises(UnsupportedError, match="tensor x has rows of 9 elements; .* even number"):
        run(device, op.finish(op.x()), op.tensors, [([0], 0)])
    op = OneOperation(rows(2, 64))
    op.tensors.add("w.weight", bytes(64 * 64), (64, 64), "I8")
    with pytest.raises(UnsupportedError, match="tensor w.weight has the type I8, which the WebGPU backend cannot decode"):
        run(device, op.finish(op.builder.matmul(op.x(), "w", 64)), op.tensors, [([0], 0)])
    op = OneOperation(rows(2, 16))
    b = op.builder
    table = b.rope_table("main", RopeTable(16, 10000.0))
    late = b.rope(b.select_outputs(op.x()), table, 16, "norm")
    with pytest.raises(UnsupportedError, match="computes rope for all tokens of a batch, not for some"):
        run(device, b.finish(late, 16), op.tensors, [([0], 0)])


@pytest.mark.parametrize("lanes, subgroups, staged", [(4, True, True), (16, True, False), (64, True, True), (32, False, True)])
def test_lanes_within_and_beyond_a_subgroup(device, lanes, subgroups, staged):
    """Subgroups are of 8 here, or of 4; with a norm, a gate, two formats, and several tokens in a tile."""
    if subgroups and SUBGROUPS not in device.info.features:
        pytest.skip("this adapter has no subgroups")
    op = OneOperation(rows(6, 512))
    for name, type_name in (("a", "Q4_K"), ("b", "Q6_K"), ("c", "F16"), ("d", "F16")):
        op.tensors.add_blocks(f"{name}.weight", type_name, 38, 512) if "Q" in type_name else (
            op.tensors.add_normal(f"{name}.weight", 38, 512, type_name=type_name))
    op.tensors.add_floats("norm.weight", rows(1, 512)[0])
    b = op.builder
    x = b.rms_norm(op.x(), "norm", 1e-5)
    a, other = b.matmul(x, "a", 38), b.matmul(x, "b", 38)
    graph = op.finish(b.concat(b.concat(a, other), b.glu(b.matmul(x, "c", 38), b.matmul(x, "d", 38), "silu")))
    shapes = tuple(LaneShape(64, lanes, rows=4, tokens=n, subgroups=subgroups, staged=staged) for n in (1, 4))
    for tokens in ([2], [0, 1, 2, 3, 4, 5]):
        assert_close(*run(device, graph, op.tensors, [(tokens, 0)], tuning=replace(HARDWARE, matmul=shapes)))


def test_few_rows_are_split_among_more_lanes_and_smaller_tiles():
    shape = LaneShape(64, 16, 4, 1, invocations=1 << 15)
    fitted = {n_rows: shape.fitted(n_rows, 64, 1) for n_rows in (1 << 17, 1 << 13, 1 << 11, 1 << 10, 1 << 6)}
    assert [(found.lanes, found.rows) for found in fitted.values()] == [(16, 4), (16, 4), (32, 2), (32, 1), (64, 1)]
    assert shape.fitted(64, 18, 2) == replace(shape, lanes=32, rows=2)  # 64 lanes for 18 groups would idle
