"""Every operation of the plan by the kernels against the numpy reference."""

import asyncio

import numpy as np
import pytest

from bridge.errors import InputError, UnsupportedError
from bridge.graph import RopeTable, cache
from bridge.graph.graph import ACTIVATIONS
from bridge.simd.formats import FORMATS, LAYOUTS
from bridge.simd.host import first_free_byte
from tests.graph import attention_operations, elementwise, expert_operations
from tests.simd.harness import OneOperation, Tensors, assert_close, open_session, reference_of, run

RNG = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def same_numbers_whatever_ran_before():
    RNG.bit_generator.state = np.random.default_rng(7).bit_generator.state

QUANTISED = [name for name, format in FORMATS.items() if not format.layout.is_float]


def rows(n, width):
    return RNG.standard_normal((n, width)).astype(np.float32)


def product(op, type_name, n_out, n_in):
    op.tensors.add_blocks("w.weight", type_name, n_out, n_in)
    return op.finish(op.builder.matmul(op.x(), "w", n_out))


@pytest.mark.parametrize("n_tokens", [1, 2, 4, 5, 9, 16])
def test_rows_of_any_batch_size(host, n_tokens):
    op = OneOperation(rows(16, 32))
    graph = product(op, "F32", 50, 32)
    assert_close(*run(host, graph, op.tensors, [(list(range(n_tokens)), 0)]))


@pytest.mark.parametrize("n_tokens", [1, 6])
@pytest.mark.parametrize("name", FORMATS)
def test_matmul_of_every_type(host, name, n_tokens):
    op = OneOperation(rows(6, 512))
    graph = product(op, name, 37, 512)
    assert_close(*run(host, graph, op.tensors, [(list(range(n_tokens)), 0)]))


def rounded_to_bytes(x):
    """Rows as ``quantise`` packs them: 32 columns share a scale, the largest becomes 127."""
    blocks = x.reshape(len(x), -1, 32)
    scale = np.abs(blocks).max(axis=-1, keepdims=True) / np.float32(127)
    return (np.round(blocks / scale) * scale).reshape(x.shape)


@pytest.mark.parametrize("n_tokens", [1, 6])
@pytest.mark.parametrize("name", QUANTISED)
def test_fast_matmul_rounds_activations_and_nothing_else(host, name, n_tokens):
    x = rows(6, 512)
    op = OneOperation(x)
    graph = product(op, name, 37, 512)
    got, exact = run(host, graph, op.tensors, [(list(range(n_tokens)), 0)], precision="fast")
    expected = rounded_to_bytes(x[:n_tokens]) @ op.tensors.values("w.weight").T
    assert_close(got, expected, 1e-4)  # values halfway between two codes may go either way
    assert 1e-4 < np.abs(got - exact).max() / np.abs(exact).max() < 0.03


@pytest.mark.parametrize("n_in", [1, 2, 3, 6, 33, 126])
@pytest.mark.parametrize("type_name", ["F32", "F16", "BF16"])
def test_matmul_of_any_width(host, type_name, n_in):
    op = OneOperation(rows(5, n_in))
    graph = product(op, type_name, 7, n_in)
    for tokens in ([4, 0, 2, 1, 3], [3]):
        assert_close(*run(host, graph, op.tensors, [(tokens, 0)]))


@pytest.mark.parametrize("n_out", [1, 2, 5, 8, 300])
def test_matmul_of_any_height(host, n_out):
    op = OneOperation(rows(5, 64))
    graph = product(op, "Q4_0", n_out, 64)
    for tokens in ([4, 0, 2, 1, 3], [3]):
        assert_close(*run(host, graph, op.tensors, [(tokens, 0)]))


@pytest.mark.parametrize("bias_type", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("residual", [False, True])
def test_matmul_with_bias_and_residual(host, residual, bias_type):
    op = OneOperation(rows(5, 50))
    op.tensors.add_blocks("w.weight", "F32", 50, 50)
    op.tensors.add_blocks("w.bias", bias_type, 50)
    x = op.x()
    product = op.builder.matmul(x, "w", 50)
    graph = op.finish(op.builder.add(product, x) if residual else product)
    for tokens in ([0, 1, 2, 3, 4], [2]):
        assert_close(*run(host, graph, op.tensors, [(tokens, 0)]))


@pytest.mark.parametrize("name", ["F32", "F16", "Q4_0", "Q6_K", "IQ2_XS"])
def test_embed_takes_rows_times_a_scale(host, name):
    tensors = Tensors()
    tensors.add_blocks("e", name, 11, 256)
    op = OneOperation(rows(1, 1))
    op.tensors = tensors
    graph = op.builder.finish(op.builder.select_outputs(op.builder.embed("e", 11, 256, scale=16.0)), 256)
    assert_close(*run(host, graph, tensors, [([10, 0, 3, 7, 3], 0)]), 1e-6)


@pytest.mark.parametrize("width, group", [(64, 64), (66, 66), (2304, 2304), (96, 24), (9, 3), (1, 1)])
def test_rms_norm_over_rows_and_heads(host, width, group):
    op = OneOperation(rows(6, width))
    op.tensors.add_floats("w.weight", RNG.standard_normal(group))
    graph = op.finish(op.builder.rms_norm(op.x(), "w", 1e-5, group))
    assert_close(*run(host, graph, op.tensors, [(list(range(6)), 0)]))


@pytest.mark.parametrize("style", ["norm", "neox"])
@pytest.mark.parametrize("head_dim, n_rot", [(16, 16), (16, 8), (10, 6), (6, 2), (2, 2)])
def test_rope_of_whole_and_partial_heads(host, style, head_dim, n_rot):
    op = OneOperation(rows(9, 3 * head_dim))
    table = op.builder.rope_table("t", RopeTable(n_rot, 10000.0))
    graph = op.finish(op.builder.rope(op.x(), table, head_dim, style))
    assert_close(*run(host, graph, op.tensors, [(list(range(9)), 40)]))


@pytest.mark.parametrize("start", [0, 1000, (1 << 20) - 9])
def test_angles_are_exact_at_any_position(host, start):
    op = OneOperation(rows(9, 64))
    table = op.builder.rope_table("t", RopeTable(64, 1e6, freq_scale=0.25, ext_factor=1.0, n_ctx_orig=4096))
    graph = op.finish(op.builder.rope(op.x(), table, 64, "norm"))
    got, expected = run(host, graph, op.tensors, [(list(range(9)), start)], n_ctx=1 << 20)
    assert_close(got, expected, 1e-6)


def test_rope_factors_come_from_the_file(host):
    op = OneOperation(rows(3, 16))
    op.tensors.add_floats("factors", np.array([1, 2, 4, 8, 1, 2, 4, 8]))
    table = op.builder.rope_table("t", RopeTable(16, 10000.0, factors_tensor="factors"))
    graph = op.finish(op.builder.rope(op.x(), table, 16, "neox"))
    assert_close(*run(host, graph, op.tensors, [([0, 1, 2], 50)]))


def attention(op, n_head, n_head_kv, head_dim, head_dim_v, **options):
    for name, width in (("q", n_head * head_dim), ("k", n_head_kv * head_dim), ("v", n_head_kv * head_dim_v)):
        op.tensors.add_floats(f"{name}.weight", RNG.standard_normal((width, op.width)) / 2)
    x = op.x()
    q, k, v = (op.builder.matmul(x, name, width) for name, width in
               (("q", n_head * head_dim), ("k", n_head_kv * head_dim), ("v", n_head_kv * head_dim_v)))
    return op.finish(op.builder.attention(q, k, v, n_head=n_head, n_head_kv=n_head_kv, head_dim=head_dim,
                                          head_dim_v=head_dim_v, scale=head_dim ** -0.5, **options))


@pytest.mark.parametrize("shape", [(4, 4, 16, 16), (6, 2, 16, 8), (3, 1, 10, 6), (2, 1, 6, 34), (20, 1, 8, 8),
                                   (1, 1, 3, 5)])
@pytest.mark.parametrize("options", [{}, {"window": 5}, {"softcap": 2.0}, {"window": 40, "softcap": 20.0}],
                         ids=["plain", "window", "softcap", "both"])
def test_attention(host, shape, options):
    op = OneOperation(rows(40, 12))
    graph = attention(op, *shape, **options)
    batches = [(list(range(16)), 0), (list(range(16, 32)), 16), (list(range(32, 39)), 32), ([39], 39)]
    for end in range(1, 5):
        assert_close(*run(host, graph, op.tensors, batches[:end]), 2e-5)


def test_attention_may_write_positions_again(host):
    op = OneOperation(rows(10, 12))
    graph = attention(op, 2, 1, 8, 8)
    assert_close(*run(host, graph, op.tensors, [([0, 1, 2, 3], 0), ([9, 8], 1), ([5], 3)]), 2e-5)


def test_a_window_keeps_a_ring_of_rows(host, monkeypatch):
    """Against a reference that keeps every position; 32 rows are enough for 5 + max(16, 8) positions."""
    monkeypatch.setattr(cache, "REWIND", 8)
    op = OneOperation(rows(40, 12))
    graph = attention(op, 4, 2, 8, 6, window=5)
    tokens = [t % 40 for t in range(120)]
    batches = [(tokens[at:at + 16], at) for at in range(0, 96, 16)] + [([7, 8, 9], 90), ([1], 93), (tokens[:10], 94)]
    for end in range(2, len(batches) + 1):
        assert_close(*run(host, graph, op.tensors, batches[:end], n_ctx=128), 2e-5)
    with pytest.raises(InputError, match="cannot start at position 70: .* it can start at 0 or from 81 on"):
        run(host, graph, op.tensors, [*batches[:6], ([1], 70)], n_ctx=128)


@pytest.mark.parametrize("kv_type", ["q8_0", "q4_0", "q8_0/f16", "f32/q4_0", "f16/q8_0"])
def test_a_quantised_cache_is_the_references(host, kv_type):
    op = OneOperation(np.concatenate([rows(18, 12), np.zeros((1, 12), np.float32)]))
    graph = attention(op, 4, 2, 32, 64)
    batches = [(list(range(9)), 0), ([9, 10, 18], 9), ([11], 12)]
    reference = reference_of(graph, op.tensors, kv_type=kv_type)

    async def both():
        session = await open_session(host, graph, op.tensors, kv_type=kv_type)
        for tokens, start in batches:
            got = np.array(await session.evaluate(tokens, start, range(len(tokens))))
            expected = await reference.evaluate(tokens, start, range(len(tokens)))
            assert_close(got.reshape(len(tokens), -1), expected.reshape(len(tokens), -1), 2e-5)
        return await session.read_kv(13), await reference.read_kv(13)

    got, expected = (np.frombuffer(data, np.uint8) for data in asyncio.run(both()))
    assert len(got) == len(expected)
    # Where a product ends on the border between two codes, its last bit decides; scales of halves differ no more.
    assert np.mean(got != expected) < 2e-3 or "f" in kv_type


def test_a_half_precision_cache_rounds_keys_and_values_to_nearest_even(host):
    op = OneOperation(rows(9, 12))
    graph = attention(op, 2, 2, 5, 5)
    got, expected = run(host, graph, op.tensors, [(list(range(9)), 0)], kv_type="f16")
    assert_close(got, expected, 2e-3)

    async def stored(kv_type):
        session = await open_session(host, graph, op.tensors, kv_type=kv_type)
        await session.evaluate(list(range(9)), 0, [0])
        data = await session.read_kv(9)
        await session.close()
        return data

    halves, singles = (asyncio.run(stored(kv_type)) for kv_type in ("f16", "f32"))
    assert np.array_equal(np.frombuffer(halves, np.float16), np.frombuffer(singles, np.float32).astype(np.float16))


def test_halves_of_every_size_are_rounded_like_numpys(host):
    """Through the cache: subnormal halves, ties, the largest half, and what is beyond it (which saturates)."""
    values = np.array([0, -0.0, 2**-24, 2**-25, 3 * 2**-25, 1.5 * 2**-24, 2**-14, 2**-14 - 2**-25, 1 + 2**-11,
                       1 + 3 * 2**-11, -1 - 2**-11, 65504, 65519, -65519, 1e-8, 0.1], np.float32)
    op = OneOperation(values.reshape(1, -1))
    op.tensors.add_floats("q.weight", np.eye(16))
    x = op.x()
    q = op.builder.matmul(x, "q", 16)
    graph = op.finish(op.builder.attention(q, x, x, n_head=1, n_head_kv=1, head_dim=16, head_dim_v=16, scale=1.0))

    async def stored():
        session = await open_session(host, graph, op.tensors, kv_type="f16")
        await session.evaluate([0], 0, [])
        data = await session.read_kv(1)
        await session.close()
        return np.frombuffer(data, np.uint16)[:16]

    assert asyncio.run(stored()).tolist() == values.astype(np.float16).view(np.uint16).tolist()


ON_ROWS = elementwise.CASES | expert_operations.CASES


@pytest.mark.parametrize("name", ON_ROWS)
def test_operation_on_rows(host, name):
    width, build = ON_ROWS[name]
    op = OneOperation(elementwise.inputs(name, width, 7, RNG))
    graph = op.finish(build(op.builder, op.x(), op.tensors, RNG))
    got, expected = run(host, graph, op.tensors, [(list(range(7)), 0)])
    assert_close(got, expected, 2e-6)
    if name in ACTIVATIONS:  # small values, too
        assert (np.abs(got - expected) <= 2e-6 * np.abs(expected) + 1e-6).all()


@pytest.mark.parametrize("name", attention_operations.CASES)
def test_attention_beyond_a_layer_of_its_own(host, name):
    op = OneOperation(rows(16, attention_operations.WIDTH))
    graph = op.finish(attention_operations.CASES[name](op.builder, op.x(), op.tensors, RNG))
    for end in range(1, len(attention_operations.BATCHES) + 1):
        assert_close(*run(host, graph, op.tensors, attention_operations.BATCHES[:end]), 2e-5)


def test_embeddings_of_positions(host):
    op = OneOperation(rows(3, 34))
    op.tensors.add_floats("p", rows(20, 34))
    graph = op.finish(op.builder.add(op.x(), op.builder.embed_positions("p", 20, 34)))
    assert_close(*run(host, graph, op.tensors, [([2, 0, 1], 11)]))


@pytest.mark.parametrize("act", ["silu", "gelu"])
def test_glu_over_the_whole_range(host, act):
    x = np.concatenate([np.linspace(-120, 120, 49), [0.0, 1e-30]]).astype(np.float32)
    op = OneOperation(np.stack([x, x[::-1]]))
    graph_x = op.x()
    graph = op.finish(op.builder.glu(graph_x, op.builder.scale(graph_x, 0.5), act))
    assert_close(*run(host, graph, op.tensors, [([0, 1], 0)]), 1e-6)


@pytest.mark.parametrize("name, build", [
    ("scale", lambda b, x: b.scale(x, -3.25)),
    ("softcap", lambda b, x: b.softcap(x, 2.0)),
    ("add", lambda b, x: b.add(x, b.scale(x, 2.0))),
])
@pytest.mark.parametrize("width", [1, 6, 64])
def test_elementwise(host, name, build, width):
    op = OneOperation(10 * rows(7, width))
    graph = op.finish(build(op.builder, op.x()))
    assert_close(*run(host, graph, op.tensors, [(list(range(7)), 0)]), 1e-6)


def test_only_wanted_rows_come_back_in_their_order(host):
    op = OneOperation(rows(7, 5))
    graph = op.finish(op.builder.scale(op.x(), 1.0))

    async def wanted(outputs):
        session = await open_session(host, graph, op.tensors)
        found = await session.evaluate([3, 4, 5, 6], 0, outputs)
        found = None if found is None else np.array(found).reshape(len(outputs), 5)
        await session.close()
        return found

    everything = op.tensors.values("x")
    assert np.array_equal(asyncio.run(wanted([1, 3])), everything[[4, 6]])
    assert asyncio.run(wanted([])) is None


@pytest.mark.parametrize("precision", ["exact", "fast"])
@pytest.mark.parametrize("normalise", [True, False])
def test_mixture_of_experts(host, normalise, precision):
    op = OneOperation(rows(6, 64))
    op.tensors.add_blocks("router.weight", "F32", 5, 64)
    op.tensors.add_blocks("up.weight", "Q8_0", 5, 32, 64)
    op.tensors.add_blocks("down.weight", "Q8_0", 5, 64, 32)
    builder, x = op.builder, op.x()
    route = builder.route(builder.matmul(x, "router", 5), 2, normalise=normalise)
    up = builder.matmul_experts(x, route, "up", 32)
    down = builder.matmul_experts(up, route, "down", 64, per_expert=True)
    graph = op.finish(builder.combine_experts(down, route))
    for tokens in ([0, 1, 2, 3, 4, 5], [3]):
        assert_close(*run(host, graph, op.tensors, [(tokens, 0)], precision=precision),
                     1e-5 if precision == "exact" else 0.05)


def test_a_tie_between_experts_goes_to_the_lower_id(host):
    op = OneOperation(rows(3, 8))
    op.tensors.add_floats("router.weight", np.zeros((4, 8)))
    graph = op.finish(op.builder.route(op.builder.matmul(op.x(), "router", 4), 2, normalise=False))
    got, expected = run(host, graph, op.tensors, [([0, 1, 2], 0)])
    assert np.array_equal(got, expected) and got[0].tolist() == [0, 1, 0.25, 0.25]


@pytest.mark.parametrize("build, message", [
    (lambda op: op.builder.rope(op.x(), op.builder.rope_table("t", RopeTable(3, 1e4)), 3, "neox"),
     "needs even numbers"),
])
def test_what_no_kernel_does_is_refused(host, build, message):
    op = OneOperation(rows(2, 9))
    graph = op.finish(build(op))
    with pytest.raises(UnsupportedError, match=message):
        asyncio.run(open_session(host, graph, op.tensors))


def test_experts_of_odd_height_are_refused_by_name(host):
    op = OneOperation(rows(2, 8))
    op.tensors.add_blocks("router.weight", "F32", 4, 8)
    op.tensors.add_blocks("up.weight", "F32", 4, 6, 8)
    route = op.builder.route(op.builder.matmul(op.x(), "router", 4), 2, normalise=True)
    graph = op.finish(op.builder.matmul_experts(op.x(), route, "up", 6))
    with pytest.raises(UnsupportedError, match="tensor up.weight has experts of 6 rows; .* needs a multiple of 4"):
        asyncio.run(open_session(host, graph, op.tensors))


def test_every_layout_is_the_layout_of_a_format():
    assert {format.layout.name for format in FORMATS.values()} == set(LAYOUTS)


@pytest.mark.parametrize("n, k", [(1, 1), (7, 7), (50, 3), (4099, 40), (70001, 2048)])
def test_the_best_tokens_come_in_order_and_equal_ones_by_id(host, n, k):
    logits = np.random.default_rng(n).integers(-40, 40, n).astype(np.float32)  # many are equal
    base = first_free_byte(host.n_threads)
    asyncio.run(host.reserve(base + (2 << 20)))
    host.write(base, logits)
    assert host.call("top_tokens", base, n, k, base + (1 << 20)) == k
    expected = sorted(range(n), key=lambda token: (-logits[token], token))[:k]
    found = host.read(base + (1 << 20), 8 * k)
    assert np.frombuffer(found[:4 * k], np.uint32).tolist() == expected
    assert np.array_equal(np.frombuffer(found[4 * k:], np.float32), logits[expected])
    assert host.call("best_token", base, n) == expected[0]


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 3, 8])
def test_no_token_is_best_among_broken_logits(host, at, broken):
    logits = np.arange(9, dtype=np.float32)
    logits[at] = broken
    base = first_free_byte(host.n_threads)
    host.write(base, logits)
    assert host.call("best_token", base, 9) == -1
    assert host.call("top_tokens", base, 9, 2, base + 4096) == 0
    for k in (0, 10, 2049):
        assert host.call("top_tokens", base, 9, k, base + 4096) == 0
