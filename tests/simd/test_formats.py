"""Weights repacked on arrival hold the very numbers they came with."""

import re
from pathlib import Path

import numpy as np
import pytest

from bridge.errors import UnsupportedError
from bridge.quants import dequantize
from bridge.quants.grids import grid
from bridge.quants.random import random_blocks
from bridge.simd.formats import FORMATS, LAYOUTS, format_of
from bridge.simd.host import first_free_byte
from tests.golden import DATA

N_IN = 512
BLOCKS = np.load(DATA / "quants" / "blocks.npz")


class Bench:
    """Repacks rows and decodes them again at fixed places of a host's memory."""

    def __init__(self, host):
        self._host = host
        base = first_free_byte(host.n_threads)
        self._grid, self._source, self._target, self._out = (base + (i << 20) for i in range(4))

    async def open(self):
        await self._host.reserve(self._out + (1 << 20))

    def through(self, format, data, n_in, step=None):
        """float32 [rows up to a whole group, n_in]; ``step``: rows handed over at a time."""
        call, unit = self._host.call, 16
        type, layout = format.type, format.layout.number
        row = n_in // type.block_size * type.type_size
        n_rows = len(data) // row
        if format.grid:
            self._host.write(self._grid, bytes(component & 255 for component in grid(format.grid)))
        step = step or n_rows
        for first in range(0, n_rows, step):
            count = min(step, n_rows - first)
            self._host.write(self._source, data[first * row:(first + count) * row])
            call("repack", layout, type.id, type.block_size, type.type_size, self._grid // unit, self._source, count,
                 n_in, self._target // unit, first // 4)
        groups = []
        for group in range(-(-n_rows // 4)):
            call("decode_group", layout, self._target // unit, group, n_in, self._out // unit)
            groups.append(np.frombuffer(self._host.read(self._out, 16 * n_in), np.float32).reshape(n_in, 4).T)
        return np.concatenate(groups)


@pytest.fixture
def bench(host, run):
    bench = Bench(host)
    run(bench.open())
    return bench


@pytest.mark.parametrize("name", FORMATS)
def test_repacked_rows_decode_to_the_same_numbers(bench, name):
    format, n_rows = FORMATS[name], 10
    data = random_blocks(name, n_rows * N_IN // format.type.block_size, np.random.default_rng(1)).tobytes()
    expected = dequantize(data, name).reshape(n_rows, N_IN)
    for step in (None, 4, 8):
        decoded = bench.through(format, data, N_IN, step)
        assert np.array_equal(decoded[:n_rows], expected)
        assert not decoded[n_rows:].any()


@pytest.mark.parametrize("name", [name for name in FORMATS if f"{name}_blocks" in BLOCKS])
def test_arbitrary_legal_blocks_decode_as_in_ggml(bench, name):
    blocks, values = BLOCKS[f"{name}_blocks"], BLOCKS[f"{name}_values"]
    rows = values.reshape(-1, max(FORMATS[name].type.block_size, 32))
    decoded = bench.through(FORMATS[name], blocks.tobytes(), rows.shape[1])[:len(rows)]
    assert np.array_equal(decoded, rows)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_the_kernels_count_a_groups_bytes_alike(host, layout):
    assert host.call("group_nbytes", layout.number, 512) == layout.group_nbytes(512)


def test_layouts_are_numbered_as_in_the_kernels():
    source = (Path(__file__).parents[2] / "kernels/simd/blocks.h").read_text()
    names = re.findall(r"\bL_(\w+)", source[source.index("enum Layout {"):source.index("N_LAYOUTS")])
    assert names == [layout.name for layout in sorted(LAYOUTS.values(), key=lambda layout: layout.number)]


def test_a_type_without_a_layout_is_named():
    with pytest.raises(UnsupportedError, match="tensor x has the type Q8_K, which the CPU backend cannot compute with"):
        format_of("Q8_K", "x")
