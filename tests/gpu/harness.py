"""Small graphs over random tensors, run on a device and on the numpy reference."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np

from bridge.gguf import BytesSource, TensorInfo
from bridge.gpu.session import GpuSession
from bridge.gpu.tuning import tuning_for
from bridge.graph import Graph, GraphBuilder
from bridge.graph.reference import ReferenceSession
from bridge.plan import lower
from bridge.quants import dequantize, quant_type
from bridge.quants.random import random_blocks
from bridge.quants.types import row_nbytes
from bridge.runtime.cancel import CancelToken
from bridge.runtime.sources import AsyncSource

F32 = np.float32


class Tensors:
    """A model file in memory, without a header: ``infos`` for builders and sessions, ``data`` the bytes."""

    def __init__(self, seed: int = 0, alignment: int = 32) -> None:
        self.infos: dict[str, TensorInfo] = {}
        self.data = b""
        self._rng = np.random.default_rng(seed)
        self._alignment = alignment

    def add(self, name: str, data: bytes, shape: Sequence[int], type_name: str = "F32") -> None:
        self.data += bytes(-len(self.data) % self._alignment)
        self.infos[name] = TensorInfo(name, quant_type(type_name), tuple(shape), len(self.data), len(data))
        self.data += data

    def add_floats(self, name: str, values: np.ndarray) -> None:
        self.add(name, values.astype(F32).tobytes(), values.shape)

    def add_normal(self, name: str, *shape: int, type_name: str = "F32") -> None:
        values = self._rng.standard_normal(shape).astype(F32)
        stored = {"F32": values, "F16": values.astype(np.float16), "BF16": (values.view(np.uint32) >> 16).astype(np.uint16)}
        self.add(name, stored[type_name].tobytes(), shape, type_name)

    def add_blocks(self, name: str, type_name: str, *shape: int) -> None:
        """Random blocks with values of about 1."""
        n_blocks = row_nbytes(type_name, shape[-1]) // quant_type(type_name).type_size * int(np.prod(shape[:-1]))
        self.add(name, random_blocks(type_name, n_blocks, self._rng).tobytes(), shape, type_name)

    def values(self, name: str) -> np.ndarray:
        info = self.infos[name]
        return dequantize(self.data[info.offset:info.offset + info.nbytes], info.type.name).reshape(info.shape)

    @property
    def source(self) -> AsyncSource:
        return AsyncSource(BytesSource(self.data))


async def open_session(device: Any, graph: Graph, tensors: Tensors, **options: Any) -> GpuSession:
    # What is tested are the kernels asked for, on a GPU, too, and not those that are the fastest there.
    options = {"n_ctx": 64, "n_ubatch": 8, "kv_type": "f32", "autotune": False} | options
    rules = (options.get("tuning") or tuning_for(device.info)).rules
    session = await GpuSession.create(device, lower(graph, rules), **options)
    await session.load_weights(tensors.source, tensors.infos, lambda loaded, total: None, CancelToken())
    return session


def reference_of(graph: Graph, tensors: Tensors, **options: Any) -> ReferenceSession:
    names = [*graph.weights(), *(t.factors_tensor for t in graph.rope_tables.values() if t.factors_tensor)]
    return ReferenceSession(graph, {name: tensors.values(name) for name in names},
                            **({"n_ctx": 64, "kv_type": "f32"} | options))


def run(device: Any, graph: Graph, tensors: Tensors, batches: Sequence[tuple[Sequence[int], int]], **options: Any):
    """The results [rows, width] of the last batch (tokens, start) on the device and on the reference, all rows wanted."""
    reference = reference_of(graph, tensors, n_ctx=options.get("n_ctx", 64))

    async def on_device():
        session = await open_session(device, graph, tensors, **options)
        try:
            for tokens, start in batches:
                got = await session.evaluate(tokens, start, range(len(tokens)))
            return np.array(got).reshape(len(tokens), -1)
        finally:
            await session.close()

    for tokens, start in batches:
        expected = asyncio.run(reference.evaluate(tokens, start, range(len(tokens))))
    return asyncio.run(on_device()), np.array(expected).reshape(len(tokens), -1)


def assert_close(got: np.ndarray, expected: np.ndarray, tolerance: float = 1e-5) -> None:
    """Equal to a fraction of the largest expected value."""
    assert got.shape == expected.shape and got.dtype == F32
    worst = np.abs(got - expected).max() / np.abs(expected).max()
    assert worst <= tolerance, f"differs by {worst:.2e} of the largest value"


class OneOperation:
    """A graph of embed, one operation and select_outputs: token t feeds row t of ``x`` [n, width] to the operation."""

    def __init__(self, x: np.ndarray, seed: int = 0) -> None:
        self.tensors = Tensors(seed)
        self.tensors.add_floats("x", x)
        self.n_rows, self.width = x.shape
        self._builder: GraphBuilder | None = None

    @property
    def builder(self) -> GraphBuilder:
        if self._builder is None:
            self._builder = GraphBuilder(self.tensors.infos)
        return self._builder

    def x(self):
        return self.builder.embed("x", self.n_rows, self.width)

    def finish(self, result) -> Graph:
        return self.builder.finish(self.builder.select_outputs(result), self.width)
