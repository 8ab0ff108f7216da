"""The kv cache: rows of rings, what is saved of them, from where they can be continued, and quantised rows."""

import numpy as np
import pytest

from bridge.errors import InputError
from bridge.graph import cache
from bridge.graph.cache import CacheLayout, CachePart, CacheReach, cache_types
from bridge.graph.graph import KvLayer
from bridge.graph.reference.cache import ReferenceCache
from bridge.quants import dequantize


def test_a_window_that_needs_the_whole_context_has_no_ring():
    layout = CacheLayout([KvLayer(8, 4, 0), KvLayer(8, 4, 512)], 1536, 64, "f16", "f16")
    assert [part.rows for part in layout.parts] == [1536] * 4
    assert layout.margin is None and layout.nbytes == 2 * 1536 * 12 * 2


def test_a_ring_does_not_grow_with_the_context():
    layers = [KvLayer(8, 4, 0), KvLayer(8, 4, 500)]
    small, large = (CacheLayout(layers, n_ctx, 64, "f16", "q8_0") for n_ctx in (8192, 32768))
    assert [small.rows(i) for i in range(2)] == [8192, 1536]  # 500 + 1024, up to a multiple of 32
    assert large.rows(1) == small.rows(1) and small.margin == 1024
    assert CacheLayout(layers, 8192, 2048, "f16", "f16").rows(1) == 2560


def test_a_saved_context_has_the_last_rows_in_order():
    part = CachePart("k", 0, 4, "f32", 1536, 500)
    assert part.saved(0) == []
    assert part.saved(100) == [(0, 100)]
    assert part.saved(1536) == [(12, 1524)]
    assert part.saved(2000) == [(476, 1060), (0, 464)]
    layout = CacheLayout([KvLayer(4, 4, 500)], 8192, 64, "f32", "f32")
    longer = CacheLayout([KvLayer(4, 4, 500)], 16384, 512, "f32", "f32")
    assert layout.saved_nbytes(2000) == longer.saved_nbytes(2000) == 2 * 1524 * 16
    assert [layout.saved_earliest(n) for n in (100, 1524, 1525, 2000)] == [0, 0, 502, 977]


def test_reach():
    reach = CacheReach(10)
    reach.begin(0)
    reach.end(8)
    assert reach.earliest == 0
    reach.begin(8)
    reach.end(25)
    assert (reach.earliest, reach.resume_position(16), reach.resume_position(15)) == (16, 16, 0)
    reach.begin(20)
    reach.end(21)
    assert reach.earliest == 16, "what was overwritten stays so"
    with pytest.raises(InputError, match="cannot start at position 15"):
        reach.begin(15)
    reach.begin(0)
    assert reach.earliest == 0
    reach.restore(100, 70)
    assert reach.earliest == 91
    assert CacheReach(None).resume_position(3) == 3


@pytest.mark.parametrize("name, types", [("f16", ("f16", "f16")), ("q8_0/q4_0", ("q8_0", "q4_0"))])
def test_types(name, types):
    assert cache_types(name) == types


@pytest.mark.parametrize("name", ["", "f8", "f16/", "f16/f16/f16", "Q8_0", None, 8])
def test_other_types_are_refused(name):
    with pytest.raises(InputError, match="it must be one of f32, f16, q8_0, q4_0"):
        cache_types(name)


@pytest.mark.parametrize("type, block, worst", [("q8_0", "Q8_0", 1 / 254), ("q4_0", "Q4_0", 1 / 8)])
def test_quantised_rows_are_ggmls_blocks_but_for_the_width_of_the_scale(type, block, worst):
    rng = np.random.default_rng(3)
    values = rng.standard_normal((5, 64)).astype(np.float32) * 10.0 ** rng.integers(-3, 3, (5, 1))
    values[2, :32] = 0
    rows = ReferenceCache(CachePart("k", 0, 64, type, 8, 0))
    rows.store(2, values)
    found = rows.load(2, 7)
    largest = np.abs(values.reshape(5, 2, 32)).max(axis=-1, keepdims=True)
    assert (np.abs(found - values).reshape(5, 2, 32) <= largest * (worst + 2**-11)).all()  # half a code, and the scale rounded to a half
    blocks = rows.bytes[2:7].reshape(10, -1)
    scales = blocks[:, :4].copy().view(np.float32)
    in_ggml = np.concatenate([scales.astype(np.float16).view(np.uint8), blocks[:, 4:]], axis=1)
    assert np.array_equal(dequantize(in_ggml.tobytes(), block).reshape(5, 64), found)


def test_quantising_rounds_as_ggml_does():
    """q8_0 rounds halves away from zero; q4_0 scales by the value of largest size, with its sign."""
    x = np.zeros((1, 32), np.float32)
    x[0, :4] = 127, 0.5, -0.5, -2.5
    rows = ReferenceCache(CachePart("k", 0, 32, "q8_0", 1, 0))
    rows.store(0, x)
    assert rows.load(0, 1)[0, :4].tolist() == [127, 1, -1, -3]
    x[0, :4] = 8, -8, 7.4, 0.6
    rows = ReferenceCache(CachePart("k", 0, 32, "q4_0", 1, 0))
    rows.store(0, x)
    assert rows.load(0, 1)[0, :4].tolist() == [8, -7, 7, 1]


def test_a_ring_wraps(monkeypatch):
    monkeypatch.setattr(cache, "REWIND", 4)
    layout = CacheLayout([KvLayer(2, 2, 3)], 64, 4, "f32", "f32")
    rows = ReferenceCache(layout.parts[0])
    assert layout.parts[0].rows == 32
    values = np.arange(100, dtype=np.float32).reshape(50, 2)
    for at in range(0, 50, 4):
        rows.store(at, values[at:at + 4])
    assert np.array_equal(rows.load(20, 50), values[20:])
    saved = np.concatenate([rows.bytes[first:first + count] for first, count in layout.parts[0].saved(50)])
    assert np.array_equal(saved.view(np.float32), values[43:])
