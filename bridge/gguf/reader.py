"""``open_gguf``: a GGUF file as metadata, tensors by name, and values of just the tensors or rows that are asked for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, BinaryIO

from bridge.errors import BridgeError, InputError, ModelError

from .errors import GGUFError
from .header import GGUFHeader
from .limits import DEFAULT_LIMITS, GGUFLimits
from .shards import model_reads, name_shard, refuse_lone_shard, shard_label, shard_names, split_count
from .sources import BytesSource, ByteSource, FileObjectSource, FileSource, JoinedSource
from .tensors import TensorInfo, shown

if TYPE_CHECKING:
    import numpy as np

_NATIVE_DTYPES = {"I8": "i1", "I16": "<i2", "I32": "<i4", "I64": "<i8", "F64": "<f8"}


class _OpenFile:
    """What the sync and the async reader share: everything that follows from the header alone."""

    def __init__(self, source, header: GGUFHeader):
        self.source = source
        self.header = header

    @property
    def version(self) -> int:
        return self.header.version

    @property
    def metadata(self) -> Mapping[str, Any]:
        return self.header.metadata

    @property
    def architecture(self) -> str | None:
        """``general.architecture``, or None where the file does not say."""
        value = self.header.metadata.get("general.architecture")
        return value if isinstance(value, str) else None

    @property
    def tensors(self) -> dict[str, TensorInfo]:
        """Tensors by name, in the order their data has in the file."""
        return self.header.tensors

    @property
    def size(self) -> int | None:
        return self.source.size

    @property
    def data_offset(self) -> int:
        return self.header.data_offset

    def tensor(self, name: str) -> TensorInfo:
        """The table entry of one tensor; raises ModelError for a name that the file does not have."""
        try:
            return self.header.tensors[name]
        except KeyError:
            raise ModelError(f"the file has no tensor {shown(str(name))}; it has {len(self.header.tensors)} tensors") from None

    def tokenizer(self):
        """The tokenizer described by the file's metadata (``bridge.tokenizer.Tokenizer``)."""
        from bridge.tokenizer import Tokenizer

        return Tokenizer.from_metadata(self.metadata)


class GGUFFile(_OpenFile):
    """An open GGUF file; ``open_gguf`` makes it. Usable as a context manager."""

    @property
    def bytes_read(self) -> int:
        """Bytes fetched from the source so far, the header's included."""
        return self.source.bytes_read

    def bytes(self, name: str) -> bytes:
        """The tensor's bytes as the file stores them: packed blocks where it is quantised."""
        info = self.tensor(name)
        return self.source.read(info.offset, info.nbytes)

    def array(self, name: str) -> np.ndarray:
        """The tensor's values in its shape: float32, except that I8 to I64 and F64 keep their own type."""
        info = self.tensor(name)
        return _decode(info, self.bytes(name)).reshape(info.shape)

    def rows(self, name: str, ids: Iterable[int]) -> np.ndarray:
        """Rows of a matrix as float32 [len(ids), n_in], reading only those rows from the source.

        A tensor of more dimensions is a stack of rows: all dimensions but the innermost are flattened.
        """
        info = self.tensor(name)
        ids = check_row_ids(info, ids)
        stored = {}
        for first, last in _runs(ids):
            data = self.source.read(info.offset + first * info.row_nbytes, (last - first + 1) * info.row_nbytes)
            stored |= _split_rows(info, first, last, data)
        return _join_rows(info, ids, stored)

    def close(self) -> None:
        self.source.close()

    def __enter__(self) -> GGUFFile:
        return self

    def __exit__(self, *_) -> None:
        self.close()


class AsyncGGUFFile(_OpenFile):
    """The same over an async source; ``open_gguf_async`` makes it."""

    async def bytes(self, name: str) -> bytes:
        info = self.tensor(name)
        return await self.source.read(info.offset, info.nbytes)

    async def array(self, name: str) -> np.ndarray:
        info = self.tensor(name)
        return _decode(info, await self.bytes(name)).reshape(info.shape)

    async def rows(self, name: str, ids: Iterable[int]) -> np.ndarray:
        info = self.tensor(name)
        ids = check_row_ids(info, ids)
        stored = {}
        for first, last in _runs(ids):
            data = await self.source.read(info.offset + first * info.row_nbytes, (last - first + 1) * info.row_nbytes)
            stored |= _split_rows(info, first, last, data)
        return _join_rows(info, ids, stored)


OneSource = str | os.PathLike | bytes | BinaryIO | ByteSource


def open_gguf(
    source: OneSource | Sequence[OneSource], *, limits: GGUFLimits = DEFAULT_LIMITS, allow_unvalidated: bool = False
) -> GGUFFile:
    """Open a path, an http(s) URL, bytes, a binary file object or a ByteSource, and read its header.

    The path or URL of any shard of a split model opens all of it; so does a list of its files in order.
    ``allow_unvalidated`` reads from a server that gives nothing to notice a changed file by. Raises GGUFError for what
    is wrong with the file and SourceError for what goes wrong while reading it.
    """
    opened, ours = _source_for(source, allow_unvalidated)
    try:
        header = _read_header(opened, limits)
        if len(opened.shards) == 1 and split_count(header) > 1:
            opened, header = _open_siblings(source, opened, header, limits, allow_unvalidated)
        return GGUFFile(opened, header)
    except BaseException:
        _close(ours)
        raise


async def open_gguf_async(source, *, limits: GGUFLimits = DEFAULT_LIMITS, seekable: bool = False) -> AsyncGGUFFile:
    """Open an async source: an object with ``size`` (bytes, or None) and ``async read(offset, length) -> bytes``.

    Where ``size`` is None a read at the end of the file may come back short. A source that joins the files of a split
    model says so in ``shards``, their sizes. ``seekable`` allows reads behind the header, which find files glued together.
    """
    sizes = getattr(source, "shards", None) or (source.size,)
    reads = model_reads(sizes, limits, seekable=seekable)
    try:
        offset, length = next(reads)
        while True:
            offset, length = reads.send(bytes(await source.read(offset, length)))
    except StopIteration as finished:
        header = finished.value
    if len(sizes) == 1:
        refuse_lone_shard(header, source.size)
    return AsyncGGUFFile(source, header)


def check_row_ids(info: TensorInfo, ids: Iterable[int]) -> list[int]:
    """``ids`` as a list of row numbers of this tensor; raises InputError for anything that is not one."""
    if isinstance(ids, (str, bytes, Mapping)) or not isinstance(ids, Iterable):
        raise InputError(f"rows() takes a list of row indices, got {type(ids).__name__}")
    checked = []
    for row in ids:
        try:
            number = None if isinstance(row, bool) else index(row)
        except TypeError:
            number = None
        if number is None or not 0 <= number < info.n_rows:
            got = repr(row) if isinstance(row, (int, float)) else f"of type {type(row).__name__}"
            raise InputError(f"{info.name}: row {got} is not one of its {info.n_rows} rows")
        checked.append(number)
    return checked


def _read_header(source: ByteSource, limits: GGUFLimits, known: Mapping[int, GGUFHeader] | None = None) -> GGUFHeader:
    reads = model_reads(source.shards, limits, known=known)
    try:
        offset, length = next(reads)
        while True:
            offset, length = reads.send(source.read(offset, length))
    except StopIteration as finished:
        return finished.value


def _source_for(source, allow_unvalidated: bool) -> tuple[ByteSource, list[ByteSource]]:
    """The byte source for what the user gave, and those that were opened here, so are ours to close on failure."""
    if isinstance(source, ByteSource):
        return source, []
    if isinstance(source, (list, tuple)):
        return _joined(source, allow_unvalidated)
    if isinstance(source, (bytes, bytearray, memoryview)):
        opened: ByteSource = BytesSource(source)
    elif isinstance(source, str) and source.lower().startswith(("http://", "https://")):
        from .http_source import HTTPSource

        opened = HTTPSource(source, allow_unvalidated=allow_unvalidated)
    elif isinstance(source, (str, os.PathLike)):
        opened = FileSource(source)
    elif hasattr(source, "read"):
        opened = FileObjectSource(source)
    else:
        raise InputError(
            "open_gguf takes a path, a URL, bytes, a binary file object, or a list of these for a split model, "
            f"got {type(source).__name__}"
        )
    return opened, [opened]


def _joined(sources: Sequence[OneSource], allow_unvalidated: bool, known: Mapping[int, ByteSource] | None = None):
    """One source over the files of a split model, and those opened here; ``known`` holds others, by index."""
    parts: list[ByteSource] = []
    ours: list[ByteSource] = []
    for i, one in enumerate(sources):
        try:
            part, opened = (known[i], []) if known and i in known else _source_for(one, allow_unvalidated)
        except BridgeError as error:
            _close(ours)
            raise name_shard(error, shard_label(i, len(sources)))
        parts.append(part)
        ours += opened
    return parts[0] if len(parts) == 1 else JoinedSource(parts), ours


def _close(sources: Iterable[ByteSource]) -> None:
    for source in sources:
        source.close()


def _open_siblings(source, opened: ByteSource, header: GGUFHeader, limits: GGUFLimits, allow_unvalidated: bool):
    """The whole set, where ``source`` is the path or URL of one of its files, which is open already."""
    name = source if isinstance(source, str) else os.fspath(source) if isinstance(source, os.PathLike) else ""
    siblings = shard_names(name) if isinstance(name, str) else None
    if siblings is None:
        refuse_lone_shard(header, opened.size)
    names, index = siblings
    if len(names) != split_count(header):
        raise GGUFError(f"the file's name says {len(names)} shards, its split.count is {split_count(header)}")
    joined, ours = _joined(names, allow_unvalidated, {index: opened})
    try:
        return joined, _read_header(joined, limits, {index: header})
    except BaseException:
        _close(ours)
        raise


def _runs(ids: list[int]) -> list[tuple[int, int]]:
    """The distinct rows as (first, last) runs of neighbours, so that each run is one read."""
    runs: list[tuple[int, int]] = []
    for row in sorted(set(ids)):
        if runs and row == runs[-1][1] + 1:
            runs[-1] = runs[-1][0], row
        else:
            runs.append((row, row))
    return runs


def _split_rows(info: TensorInfo, first: int, last: int, data: bytes) -> dict[int, bytes]:
    n = info.row_nbytes
    return {row: data[(row - first) * n : (row - first + 1) * n] for row in range(first, last + 1)}


def _join_rows(info: TensorInfo, ids: list[int], stored: dict[int, bytes]) -> np.ndarray:
    from bridge.quants import dequantize

    return dequantize(b"".join(stored[row] for row in ids), info.type).reshape(len(ids), info.shape[-1])


def _decode(info: TensorInfo, data: bytes) -> np.ndarray:
    if info.type.name in _NATIVE_DTYPES:
        import numpy as np

        return np.frombuffer(data, _NATIVE_DTYPES[info.type.name]).copy()
    from bridge.quants import dequantize

    return dequantize(data, info.type)
