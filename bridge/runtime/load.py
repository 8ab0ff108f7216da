"""Loading: header -> graph -> plan -> a session on a backend, with the weights streamed straight into it."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from bridge.errors import DeviceError, InputError, UnsupportedError
from bridge.gguf import AsyncGGUFFile, open_gguf, open_gguf_async
from bridge.graph import LOGITS, Graph
from bridge.graph.cache import BLOCK, QUANTISED, cache_types
from bridge.models import build_graph
from bridge.models.pooling import POOLINGS
from bridge.plan import lower
from bridge.runtime.backend import Session
from bridge.runtime.cancel import CancelToken
from bridge.runtime.embeddings import embeddings_of
from bridge.runtime.model import Model
from bridge.runtime.sources import AsyncSource
from bridge.tokenizer import Tokenizer

BACKENDS = ("auto", "webgpu", "simd", "reference")
DEFAULT_N_CTX = 4096
DEFAULT_N_UBATCH = 64
REFERENCE_N_UBATCH = 512
SOFTWARE_N_UBATCH = 16
"""On a software adapter: a prompt's progress is told after each batch, and 64 are only a tenth faster there."""
MAX_OUTPUTS = 8
"""Rows of logits in one batch: they are as wide as the vocabulary."""
MAX_TEXTS = 64
"""Texts that an encoder takes in one batch."""
MAX_N_CTX = 1 << 20
MAX_THREADS = 1 << 20
PRECISIONS = ("fast", "exact")

Progress = Callable[[int, int], None]
Devices = Callable[[], Awaitable[Any]]
Cpus = Callable[[], Awaitable[Any]]


@dataclass(frozen=True)
class LoadOptions:
    """``n_ctx``: context size in tokens; ``n_ubatch``: most tokens per batch; ``kv_type``: that of the kv
    cache, see bridge.graph.cache ("f16"; "q8_0/f16" for K and V).

    ``precision``: "exact" for products in float32, "fast" for what the backend can do faster (bridge.simd.session,
    bridge.gpu.tuning); where it is None, who asks for an unrounded cache gets unrounded products, too. On the CPU:
    ``threads`` for single tokens and ``threads_batch`` for prompts (None: all there are). ``pooling``: how a text becomes
    one vector (bridge.models.pooling.POOLINGS), None as the file says.
    """

    n_ctx: int = DEFAULT_N_CTX
    n_ubatch: int | None = None
    kv_type: str = "f16"
    backend: str = "auto"
    threads: int | None = None
    threads_batch: int | None = None
    precision: str | None = None
    pooling: str | None = None

    def __post_init__(self) -> None:
        _check_integer("n_ctx", self.n_ctx, MAX_N_CTX)
        if self.n_ubatch is not None:
            _check_integer("n_ubatch", self.n_ubatch, MAX_N_CTX)
        cache_types(self.kv_type)
        if self.backend not in BACKENDS:
            raise InputError(f"backend is {self.backend!r}; it must be one of {', '.join(BACKENDS)}")
        for name in ("threads", "threads_batch"):
            if getattr(self, name) is not None:
                _check_integer(name, getattr(self, name), MAX_THREADS)
        if self.pooling not in (None, *POOLINGS):
            raise InputError(f"pooling is {self.pooling!r}; it must be one of {', '.join(POOLINGS)}")
        if self.precision not in (None, *PRECISIONS):
            raise InputError(f"precision is {self.precision!r}; it must be one of {', '.join(PRECISIONS)}")


async def load_model(source: Any, options: LoadOptions | None = None, *, devices: Devices | None = None,
                     cpus: Cpus | None = None, progress: Progress | None = None,
                     cancel: CancelToken | None = None) -> Model:
    """Load the model that ``source`` holds: an async source (see bridge.runtime.sources), or anything ``open_gguf`` takes.

    ``devices`` gives the WebGPU device to compute on (a bridge.gpu.owner.DeviceOwner: another one after a loss), ``cpus`` the
    host of the CPU backend (bridge.simd.host); the caller keeps owning both. "auto" takes a hardware adapter, else the CPU.
    ``progress(loaded, total)`` counts bytes of the file.
    On any failure, and on cancellation (Cancelled), everything allocated is freed again.
    """
    options, cancel = options or LoadOptions(), cancel or CancelToken()
    report = progress or (lambda loaded, total: None)
    if hasattr(source, "js"):
        return await _load(source, options, devices, cpus, report, cancel)
    opened = open_gguf(source).source
    try:
        return await _load(AsyncSource(opened), options, devices, cpus, report, cancel)
    finally:
        if opened is not source:
            opened.close()


async def _load(source: Any, options: LoadOptions, devices: Devices | None, cpus: Cpus | None, report: Progress,
                cancel: CancelToken) -> Model:
    file = await open_gguf_async(source)
    cancel.check()
    graph = build_graph(file.metadata, file.tensors, options.n_ctx, options.pooling)
    tokenizer = Tokenizer.from_metadata(file.metadata)
    machine = await choose_machine(options.backend, devices, cpus)
    kv_type = possible_cache(options.kv_type, graph)
    cache_notes = ["kv_cache_quantisation_unavailable:using_f16"] if kv_type != options.kv_type else []
    options = replace(options, kv_type=kv_type)
    session = await _open_session(file, graph, source, options, machine, report, cancel)
    try:
        cancel.check()
        n_ctx_train = file.metadata.get(f"{file.architecture}.context_length", 0)
        content = await source.content_mark(file.tensors.values())
        model = Model(session, tokenizer, metadata=file.metadata, architecture=file.architecture, n_vocab=graph.n_vocab,
                      n_ctx_train=n_ctx_train, nbytes=source.size, kv_type=options.kv_type,
                      has_logits=LOGITS in graph.results, embeddings=embeddings_of(graph),
                      fingerprint=model_fingerprint(file, graph, source.size, content))
    except BaseException:
        await session.close()
        raise
    for note in (*machine.notes, *cache_notes, *tokenizer.notes):
        model.note(note)
    if model.n_ctx < options.n_ctx:
        model.note(f"n_ctx_capped:{model.n_ctx}")
    elif n_ctx_train and options.n_ctx > n_ctx_train:
        model.note(f"n_ctx_exceeds_training:{n_ctx_train}")
    return model


@dataclass(frozen=True)
class Machine:
    """What a model will run on: a WebGPU device, or the host of the CPU backend, or neither; ``notes`` say why."""

    device: Any = None
    cpu: Any = None
    notes: tuple[str, ...] = ()


async def choose_machine(backend: str, devices: Devices | None, cpus: Cpus | None) -> Machine:
    """The machine for a backend. Raises DeviceError or UnsupportedError when there is none such."""
    if backend == "reference":
        return Machine()
    if backend == "simd":
        if cpus is None:
            raise DeviceError("no CPU backend was given, and the model was asked to run on one")
        return Machine(cpu=await cpus())
    if devices is None:
        if backend == "webgpu" or cpus is None:
            raise DeviceError("no WebGPU device was given, and the model was asked to run on one")
        return Machine(cpu=await cpus())
    if backend == "webgpu" or cpus is None:
        return Machine(device=await devices())
    return await _best_machine(devices, cpus)


async def _best_machine(devices: Devices, cpus: Cpus) -> Machine:
    try:
        device = await devices()
    except DeviceError:
        return Machine(cpu=await cpus(), notes=("no_webgpu_adapter:using_cpu",))
    if not device.info.is_software:
        return Machine(device=device)
    try:
        return Machine(cpu=await cpus(), notes=("software_webgpu_adapter:using_cpu",))
    except (DeviceError, UnsupportedError):
        return Machine(device=device, notes=("no_cpu_backend:using_software_webgpu",))


def model_fingerprint(file: AsyncGGUFFile, graph: Graph, nbytes: int | None, content: bytes) -> bytes:
    """32 bytes that tell models apart: size, metadata, tensor table, weights (as far as ``content`` knows them, see
    bridge.runtime.sources), cache and rope tables.

    The rope tables may depend on the context size (LongRoPE), and with them what a cache means.
    """
    facts = [nbytes, sorted((k, v) for k, v in file.metadata.items() if isinstance(v, str | bool | int | float)),
             [(t.name, t.type.name, t.shape, t.offset) for t in file.tensors.values()],
             content, graph.kv_layers, graph.states, sorted(graph.rope_tables.items())]
    return hashlib.sha256(repr(facts).encode()).digest()


def possible_cache(kv_type: str, graph: Graph) -> str:
    """The type of cache that a graph gets where ``kv_type`` is asked for: halves where blocks of columns would straddle heads."""
    heads = [node.attrs[key] for node in graph.nodes if node.op == "attention" for key in ("head_dim", "head_dim_v")]
    straddles = set(cache_types(kv_type)) & set(QUANTISED) and any(dim % BLOCK for dim in heads)
    return "f16" if straddles else kv_type


async def _open_session(file: AsyncGGUFFile, graph: Graph, source: Any, options: LoadOptions, machine: Machine,
                        progress: Progress, cancel: CancelToken) -> Session:
    software = machine.device is not None and machine.device.info.is_software
    default = SOFTWARE_N_UBATCH if software else DEFAULT_N_UBATCH if machine.device or machine.cpu else REFERENCE_N_UBATCH
    sizes = session_sizes(graph, options, default)
    common = {**asdict(sizes), "kv_type": options.kv_type}
    precision = options.precision or ("exact" if options.kv_type == "f32" else "fast")
    if machine.device is not None:
        from bridge.gpu.session import GpuSession
        from bridge.gpu.tuning import tuning_for

        exact = precision == "exact"
        tuning = tuning_for(machine.device.info, exact=exact)
        session = await GpuSession.create(machine.device, lower(graph, tuning.rules), tuning=tuning, exact=exact, **common)
    elif machine.cpu is not None:
        from bridge.simd.session import SimdSession

        session = await SimdSession.create(machine.cpu, lower(graph), threads=options.threads,
                                           threads_batch=options.threads_batch, precision=precision, **common)
    else:
        return await _reference_session(file, graph, source, sizes, options.kv_type, progress, cancel)
    try:
        await session.load_weights(source, file.tensors, progress, cancel)
    except BaseException:
        await session.close()
        raise
    return session


@dataclass(frozen=True)
class SessionSizes:
    n_ctx: int
    n_ubatch: int
    max_outputs: int


def session_sizes(graph: Graph, options: LoadOptions, n_ubatch: int) -> SessionSizes:
    """Tokens of the context and of a batch, and rows of results; ``n_ubatch`` is used where the options name none.

    A model that reads whole texts takes the longest one in one batch, and several short ones.
    """
    n_ctx = min(options.n_ctx, graph.n_positions or options.n_ctx)
    if not graph.reads_whole_texts:
        n_ubatch = min(options.n_ubatch or n_ubatch, n_ctx)
        return SessionSizes(n_ctx, n_ubatch, min(MAX_OUTPUTS, n_ubatch))
    n_ubatch = min(options.n_ubatch or n_ctx, n_ctx)
    return SessionSizes(n_ctx, n_ubatch, n_ubatch if graph.pooling == "none" else min(MAX_TEXTS, n_ubatch))


async def _reference_session(file: AsyncGGUFFile, graph: Graph, source: Any, sizes: SessionSizes, kv_type: str,
                             progress: Progress, cancel: CancelToken) -> Session:
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
    return ReferenceSession(graph, weights, n_ctx=sizes.n_ctx, n_ubatch=sizes.n_ubatch, kv_type=kv_type)


def _check_integer(name: str, value: Any, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= high:
        raise InputError(f"{name} is {value!r}; it must be an integer from 1 to {high}")
