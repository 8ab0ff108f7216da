"""Products in each type of elements, of many tokens in tiles and of few, against the numpy reference."""

from dataclasses import replace

import numpy as np
import pytest

from bridge.gpu.calls import CallBuilder
from bridge.gpu.device import F16, PACKED_DOT, SUBGROUPS, AdapterInfo
from bridge.gpu.formats import FORMATS
from bridge.gpu.steps import calls_of
from bridge.gpu.tuning import HARDWARE, SOFTWARE, LaneShape, TileShape, tuning_for, with_products
from bridge.gpu.weights import place_weights
from bridge.graph.cache import CacheLayout
from bridge.plan import lower
from tests.gpu.harness import OneOperation, run
from tests.gpu.test_block_formats import n_in_of

NEEDS = {"f32": None, "f16": F16, "int8": PACKED_DOT}
TOLERANCE = {"f32": 3e-6, "f16": 4e-3, "int8": 3e-2}
N_TOKENS, N_OUT = 37, 43  # two tiles of tokens and of rows, the second neither full nor a multiple of anything


def in_tiles(products, **sizes):
    """Hardware's tuning with that one tile for everything; twice as many blocks at once as needed for bytes."""
    sizes = {"workgroup": 64, "rows": 4, "columns": 4, "tokens": 32} | sizes
    floats = TileShape(**sizes, from_rows=1)
    tile = replace(floats, products=products, blocks=2 if products == "int8" else 1)
    return replace(HARDWARE, matmul=(HARDWARE.matmul[0], floats, tile), norm_apart=1)


def products_of(names):
    """One graph that multiplies the same rows with a matrix of each format, and its results side by side."""
    rng = np.random.default_rng(11)
    op = OneOperation(rng.standard_normal((N_TOKENS, 512)).astype(np.float32) * np.exp(rng.uniform(-4, 4, (N_TOKENS, 1))))
    b, x, results = op.builder, op.x(), None
    for name in names:
        n_in = n_in_of(name)
        if FORMATS[name].type.block_size == 1:
            op.tensors.add_normal(f"{name}.weight", N_OUT, n_in, type_name=name)
        else:
            op.tensors.add_blocks(f"{name}.weight", name, N_OUT, n_in)
        product = b.matmul(b.columns(x, 0, n_in) if n_in < 512 else x, name, N_OUT)
        results = product if results is None else b.concat(results, product)
    return op.finish(results), op.tensors


@pytest.mark.parametrize("products", NEEDS)
def test_every_format_in_tiles(device, products):
    if NEEDS[products] and NEEDS[products] not in device.info.features:
        pytest.skip(f"this adapter has no {NEEDS[products]}")
    check_every_format_in_tiles(device, products, list(FORMATS))


def check_every_format_in_tiles(device, products, names):
    graph, tensors = products_of(names)
    got, expected = run(device, graph, tensors, [(list(range(N_TOKENS)), 0)], tuning=in_tiles(products), n_ubatch=N_TOKENS,
                        max_outputs=N_TOKENS)
    for i, name in enumerate(names):
        mine, right = (rows[:, i * N_OUT:(i + 1) * N_OUT] for rows in (got, expected))
        # Rows of x differ by a factor of 3000, so that each must be right by its own measure.
        worst = (np.abs(mine - right).max(axis=1) / np.abs(right).max(axis=1)).max()
        narrow = TileShape(64, 4, 4, 32, 1, products).takes(FORMATS[name])
        assert worst <= TOLERANCE[products if narrow else "f32"], f"{name} differs by {worst:.2e}"
        assert narrow == (worst > TOLERANCE["f32"]) or products == "f32", f"{name} was not multiplied in {products}"


@pytest.mark.parametrize("products, sizes", [("f32", {"workgroup": 256, "tokens": 64}),
                                             ("f16", {"workgroup": 128, "rows": 8, "tokens": 64}),
                                             ("int8", {"workgroup": 128, "columns": 2, "tokens": 16})])
def test_other_sizes_of_tiles(device, products, sizes):
    if NEEDS[products] and NEEDS[products] not in device.info.features:
        pytest.skip(f"this adapter has no {NEEDS[products]}")
    graph, tensors = products_of(["Q6_K"])
    got, expected = run(device, graph, tensors, [(list(range(N_TOKENS)), 0)], tuning=in_tiles(products, **sizes),
                        n_ubatch=N_TOKENS, max_outputs=N_TOKENS)
    assert np.abs(got - expected).max() <= TOLERANCE[products] * np.abs(expected).max()


def experts_of(type_name):
    """Two products by experts with biases, as wide as the format needs; one expert is chosen by nobody, one by most."""
    n_in, n_expert, n_used = n_in_of(type_name) // 4 * 4, 7, 3
    op = OneOperation(np.random.default_rng(12).standard_normal((N_TOKENS, n_in)).astype(np.float32))
    router = np.random.default_rng(13).standard_normal((n_expert, n_in)) * 0.3
    op.tensors.add_floats("router.weight", router)
    op.tensors.add_floats("router.bias", np.array([0, 0, 0, -1e4, 0, 1e3, 0]))
    for name, shape in (("up", (n_expert, n_in, n_in)), ("down", (n_expert, N_OUT, n_in))):
        if FORMATS[type_name].type.block_size == 1:
            op.tensors.add_normal(f"{name}.weight", *shape, type_name=type_name)
        else:
            op.tensors.add_blocks(f"{name}.weight", type_name, *shape)
        op.tensors.add_floats(f"{name}.bias", np.random.default_rng(14).standard_normal(shape[:2]))
    b, x = op.builder, op.x()
    route = b.route(b.matmul(x, "router", n_expert), n_used, normalise=True)
    up = b.matmul_experts(x, route, "up", n_in)
    return op.finish(b.combine_experts(b.matmul_experts(up, route, "down", N_OUT, per_expert=True), route)), op.tensors


@pytest.mark.parametrize("type_name, products", [("F32", "f32"), ("Q6_K", "f32"), ("Q4_0", "f16"), ("Q8_0", "int8"),
                                                 ("IQ2_XS", "f32")])
def test_tokens_are_brought_together_by_their_experts(device, monkeypatch, type_name, products):
    check_experts(device, monkeypatch, type_name, products, parts=1)


def test_experts_in_several_buffers(device, monkeypatch):
    """Borders between buffers lie inside of experts."""
    check_experts(device, monkeypatch, "Q8_0", "f32", parts=2)


def check_experts(device, monkeypatch, type_name, products, parts):
    if NEEDS[products] and NEEDS[products] not in device.info.features:
        pytest.skip(f"this adapter has no {NEEDS[products]}")
    graph, tensors = experts_of(type_name)
    if parts > 1:
        most = tensors.infos["up.weight"].nbytes * 7 // 10
        monkeypatch.setattr(device, "limits", replace(device.limits, max_storage_buffer_binding_size=most))
    tuning = in_tiles(products)
    plan = lower(graph, tuning.rules)
    builder = CallBuilder(plan, place_weights(plan, device.limits), tuning, max_workgroups=65535,
                          cache=CacheLayout((), 64, 64, "f16", "f16"))
    files = [call.choices[0].pipeline.file for step in plan.steps if step.kernel == "matmul_experts"
             for call in calls_of(builder, step) if call.takes(N_TOKENS)]
    assert files.count("group_experts.wgsl") == 2 and files.count("matmul_tiled.wgsl") == parts + 1
    for n in (N_TOKENS, 10, 9, 1):  # 28 slots are enough for tiles: 10 tokens with three experts of seven
        got, expected = run(device, graph, tensors, [(list(range(n)), 0)], tuning=tuning, n_ubatch=N_TOKENS,
                            max_outputs=N_TOKENS)
        # Twice the tolerance: one product after another.
        assert np.abs(got - expected).max() <= 2 * TOLERANCE[products] * np.abs(expected).max()


@pytest.mark.parametrize("n_tokens", [1, 6])
def test_every_format_in_bytes_for_few_tokens(device, n_tokens):
    if not {PACKED_DOT, SUBGROUPS} <= set(device.info.features) or device.info.subgroup_min_size < 8:
        pytest.skip("this adapter has no packed dot products or no subgroups of at least 8")
    names = [name for name, format in FORMATS.items() if format.type.block_size > 1]
    graph, tensors = products_of(names)
    shapes = tuple(LaneShape(64, 16, 4, n, subgroups=True, staged=True, products="int8") for n in (1, 4))
    got, expected = run(device, graph, tensors, [(list(range(n_tokens)), 0)], tuning=replace(HARDWARE, matmul=shapes))
    for i, name in enumerate(names):
        mine, right = (rows[:, i * N_OUT:(i + 1) * N_OUT] for rows in (got, expected))
        worst = (np.abs(mine - right).max(axis=1) / np.abs(right).max(axis=1)).max()
        assert TOLERANCE["f32"] < worst <= TOLERANCE["int8"], f"{name} differs by {worst:.2e}"


@pytest.mark.parametrize("features, exact, products", [((), False, {"f32"}), ((F16,), True, {"f32"}),
                                                       ((F16, PACKED_DOT), False, {"f32", "f16"})])
def test_narrower_products_only_where_they_are_there_and_may_be(features, exact, products):
    hardware = tuning_for(AdapterInfo("vendor", features=features), exact=exact)
    assert {shape.products for shape in hardware.matmul if isinstance(shape, TileShape)} == products
    assert tuning_for(AdapterInfo("vendor", is_software=True, features=features), exact=exact) == SOFTWARE
