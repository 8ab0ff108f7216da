"""Loading: header -> graph -> plan -> a session on a backend, with the weights streamed straight into it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from bridge.errors import DeviceError, InputError, UnsupportedError
from bridge.gguf import AsyncGGUFFile, open_gguf, open_gguf_async
from bridge.graph import Graph
from bridge.models import build_graph
from bridge.plan import lower
from bridge.runtime.backend import Session
from bridge.runtime.cancel import CancelToken
from bridge.runtime.model import Model
from bridge.runtime.sources import AsyncSource
from bridge.tokenizer import Tokenizer

BACKENDS = ("auto", "webgpu", "simd", "reference")
KV_TYPES = ("f16", "f32")
DEFAULT_N_CTX = 4096
DEFAULT_N_UBATCH = 64
MAX_N_CTX = 1 << 20

Progress = Callable[[int, int], None]
Devices = Callable[[], Awaitable[Any]]


@dataclass(frozen=True)
class LoadOptions:
    """``n_ctx``: context size in tokens; ``n_ubatch``: most tokens per batch; ``kv_type``: "f16" or "f32"."""

    n_ctx: int = DEFAULT_N_CTX
    n_ubatch: int | None = None
    kv_type: str = "f16"
    backend: str = "auto"

    def __post_init__(self) -> None:
        _check_integer("n_ctx", self.n_ctx, MAX_N_CTX)
        if self.n_ubatch is not None:
            _check_integer("n_ubatch", self.n_ubatch, MAX_N_CTX)
        if self.kv_type not in KV_TYPES:
            raise InputError(f"kv_type is {self.kv_type!r}; it must be one of {', '.join(KV_TYPES)}")
        if self.backend not in BACKENDS:
            raise InputError(f"backend is {self.backend!r}; it must be one of {', '.join(BACKENDS)}")


async def load_model(source: Any, options: LoadOptions | None = None, *, devices: Devices | None = None,
                     progress: Progress | None = None, cancel: CancelToken | None = None) -> Model:
    """Load the model that ``source`` holds: an async source (see bridge.runtime.sources), or anything ``open_gguf`` takes.

    ``devices`` gives the WebGPU device to compute on; the caller keeps owning it. ``progress(loaded, total)`` counts
    bytes of the file. On any failure, and on cancellation (Cancelled), everything allocated is freed again.
    """
    options, cancel = options or LoadOptions(), cancel or CancelToken()
    report = progress or (lambda loaded, total: None)
    if isinstance(source, str | bytes) or not hasattr(source, "js"):
        source = AsyncSource(open_gguf(source).source)
    file = await open_gguf_async(source)
    cancel.check()
    graph = build_graph(file.metadata, file.tensors, options.n_ctx)
    tokenizer = Tokenizer.from_metadata(file.metadata)
    session = await _open_session(file, graph, source, options, devices, report, cancel)
    try:
        cancel.check()
        n_ctx_train = file.metadata.get(f"{file.architecture}.context_length", 0)
        model = Model(session, tokenizer, metadata=file.metadata, architecture=file.architecture,
                      n_vocab=graph.n_vocab, n_ctx_train=n_ctx_train, nbytes=source.size)
    except BaseException:
        await session.close()
        raise
    for note in tokenizer.notes:
        model.note(note)
    if n_ctx_train and options.n_ctx > n_ctx_train:
        model.note(f"n_ctx_exceeds_training:{n_ctx_train}")
    return model


async def _open_session(file: AsyncGGUFFile, graph: Graph, source: Any, options: LoadOptions, devices: Devices | None,
                        progress: Progress, cancel: CancelToken) -> Session:
    if options.backend == "simd":
        raise UnsupportedError("the simd backend is not available in this build; use webgpu or reference")
    if options.backend == "reference":
        return await _reference_session(file, graph, source, options, progress, cancel)
    if devices is None:
        raise DeviceError("no WebGPU device was given, and the model was asked to run on one")
    from bridge.gpu.session import GpuSession

    session = await GpuSession.create(await devices(), lower(graph), n_ctx=options.n_ctx,
                                      n_ubatch=options.n_ubatch or min(DEFAULT_N_UBATCH, options.n_ctx),
                                      kv_type=options.kv_type)
    try:
        await session.load_weights(source, file.tensors, progress, cancel)
    except BaseException:
        await session.close()
        raise
    return session


async def _reference_session(file: AsyncGGUFFile, graph: Graph, source: Any, options: LoadOptions, progress: Progress,
                             cancel: CancelToken) -> Session:
    import numpy as np

    from bridge.graph.reference import ReferenceSession
    from bridge.quants import dequantize

    names = list(graph.weights()) + [t.factors_tensor for t in graph.rope_tables.values() if t.factors_tensor]
    weights: dict[str, Any] = {}
    for name in names:
        cancel.check()
        info = file.tensors[name]
        data = await source.read(info.offset, info.nbytes)
        weights[name] = dequantize(data, info.type.name).reshape(info.shape)
        progress(min(info.offset + info.nbytes, source.size), source.size)
    progress(source.size, source.size)
    kv_dtype = {"f16": np.float16, "f32": np.float32}[options.kv_type]
    return ReferenceSession(graph, weights, n_ctx=options.n_ctx, kv_dtype=kv_dtype)


def _check_integer(name: str, value: Any, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= high:
        raise InputError(f"{name} is {value!r}; it must be an integer from 1 to {high}")
