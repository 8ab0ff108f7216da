"""Answers the calls of ``web/gguf.js``: a method and its arguments in, a value or what went wrong out.

Values are those that Pyodide's ``toJs`` makes JavaScript values of: numbers, text, lists, dicts, bytes, numpy arrays.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from re import sub
from typing import Any

from bridge.errors import BridgeError, InputError, ModelError
from bridge.gguf import AsyncGGUFFile, GGUFHeader, GGUFLimits, open_gguf_async

from .page_source import PageSource

INLINE_LENGTH = 64  # elements; longer arrays (vocabularies, merges) go to the page only when it asks for them
PREVIEW_LENGTH = 16
PIECE_BYTES = 4 << 20  # of packed blocks, decoded at once
LIMITS = {sub("_(.)", lambda match: match[1].upper(), each.name): each.name for each in fields(GGUFLimits)}
"""The page's names of the limits, such as ``maxHeaderBytes``, and ours."""


class FileClosed(InputError):
    """A call on a file that was closed."""

    code = "CLOSED"


@dataclass
class OpenFile:
    header: GGUFHeader
    size: int
    tokenizer: Any = None


class ReaderHost:
    """The open files of one worker.

    ``read(call, offset, length)`` asks the page for bytes of the file that the call is about; ``load_package(name)``
    makes a package importable; ``new_floats(n)`` gives JavaScript memory for n float32 values.
    """

    def __init__(self, read: Callable[[int, int, int], Awaitable[Any]], load_package: Callable[[str], Awaitable[Any]],
                 new_floats: Callable[[int], Any]):
        self._read, self._load_package, self._new_floats = read, load_package, new_floats
        self._files: dict[int, OpenFile] = {}
        self._methods = {
            "metadataArray": self._metadata_array,
            "rows": self._rows,
            "floats": self._floats,
            "vocabulary": self._vocabulary,
            "encode": self._encode,
            "decode": self._decode,
            "pieces": self._pieces,
        }

    async def call(self, call: int, file: int, method: str, arguments: list) -> dict[str, Any]:
        """``{"value": …}``, or ``{"error": {"code", "message", "needsMoreBytes"}}``; ``call`` numbers the page's calls."""
        try:
            if method == "open":
                value = await self._open(call, file, *arguments)
            elif method == "close":
                value = self._files.pop(file, None) is not None
            else:
                opened = self._opened(file)
                source = PageSource(partial(self._read, call), opened.size)
                value = await self._methods[method](opened, AsyncGGUFFile(source, opened.header), *arguments)
            return {"value": value}
        except BridgeError as error:
            needs_more = getattr(error, "needs_more_bytes", False)
            return {"error": {"code": error.code, "message": str(error), "needsMoreBytes": needs_more}}
        except Exception as error:
            traceback.print_exception(error)
            text = f"internal error in {method}: {type(error).__name__}: {error}"
            return {"error": {"code": "INTERNAL", "message": text, "needsMoreBytes": False}}

    def _opened(self, file: int) -> OpenFile:
        if file not in self._files:
            raise FileClosed("the file is not open")
        return self._files[file]

    async def _open(self, call: int, file: int, size: int, shards: list[int] | None, limits: Any) -> dict[str, Any]:
        source = PageSource(partial(self._read, call), size, shards)
        gguf = await open_gguf_async(source, limits=limits_from(limits), seekable=True)
        self._files[file] = OpenFile(gguf.header, size)
        return description(gguf)

    async def _metadata_array(self, opened: OpenFile, gguf: AsyncGGUFFile, key: str) -> Any:
        value = gguf.metadata.get(key)
        if value is None or isinstance(value, (str, int, float)):
            raise ModelError(f"the metadata has no array {str(key)[:100]!r}")
        return value.tolist() if gguf.metadata.value_type(key) == "array of string" else value

    async def _rows(self, opened: OpenFile, gguf: AsyncGGUFFile, name: str, ids: list[int]) -> Any:
        await self._load_package("numpy")
        return (await gguf.rows(name, ids)).reshape(-1)

    async def _floats(self, opened: OpenFile, gguf: AsyncGGUFFile, name: str) -> Any:
        """All values of a tensor, decoded piece by piece into JavaScript's memory: they may not fit into this one."""
        await self._load_package("numpy")
        from bridge.quants import dequantize

        info = gguf.tensor(name)
        type = info.type
        piece = PIECE_BYTES // type.type_size * type.type_size
        out = self._new_floats(info.n_elements)
        for start in range(0, info.nbytes, piece):
            data = await gguf.source.read(info.offset + start, min(piece, info.nbytes - start))
            values = dequantize(data, type)
            first = start // type.type_size * type.block_size
            out.subarray(first, first + values.size).assign(values)
        return out

    async def _vocabulary(self, opened: OpenFile, gguf: AsyncGGUFFile) -> dict[str, Any]:
        tokenizer = _tokenizer(opened, gguf)
        return {
            "nVocab": tokenizer.n_vocab,
            "bosId": tokenizer.bos_id,
            "eosId": tokenizer.eos_id,
            "addBos": tokenizer.add_bos,
            "addEos": tokenizer.add_eos,
            "notes": list(tokenizer.notes),
        }

    async def _encode(self, opened: OpenFile, gguf: AsyncGGUFFile, text: Any, add_special: bool, parse_special: bool) -> list:
        return _tokenizer(opened, gguf).encode(text, add_special=add_special, parse_special=parse_special)

    async def _decode(self, opened: OpenFile, gguf: AsyncGGUFFile, ids: list, special: bool) -> bytes:
        return _tokenizer(opened, gguf).decode_bytes(ids, special=special)

    async def _pieces(self, opened: OpenFile, gguf: AsyncGGUFFile, ids: list) -> list[bytes]:
        tokenizer = _tokenizer(opened, gguf)
        return [tokenizer.token_bytes(id_, special=True) for id_ in ids]


def _tokenizer(opened: OpenFile, gguf: AsyncGGUFFile) -> Any:
    """Made when it is first needed: most readers of a file want no tokens."""
    if opened.tokenizer is None:
        opened.tokenizer = gguf.tokenizer()
    return opened.tokenizer


def limits_from(given: Any) -> GGUFLimits:
    """Limits from the page's object; raises InputError for a name or a value that is none."""
    if given is None:
        return GGUFLimits()
    if not isinstance(given, Mapping):
        raise InputError(f"limits is an object of numbers, got {type(given).__name__}")
    for name, value in given.items():
        if name not in LIMITS:
            raise InputError(f"there is no limit {str(name)[:40]!r}; there are {', '.join(LIMITS)}")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            got = value if isinstance(value, (int, float)) else f"of type {type(value).__name__}"
            raise InputError(f"the limit {name} is {got}; it must be a whole number of at least 1")
    return GGUFLimits(**{LIMITS[name]: value for name, value in given.items()})


def description(gguf: AsyncGGUFFile) -> dict[str, Any]:
    """The header as the page keeps it."""
    types = gguf.metadata.value_type
    return {
        "version": gguf.version,
        "architecture": gguf.architecture,
        "dataOffset": gguf.data_offset,
        "alignment": gguf.header.alignment,
        "metadata": [[key, types(key), *_metadata_value(value)] for key, value in gguf.metadata.items()],
        "tensors": [
            [t.name, t.dtype, list(t.shape), t.offset, t.nbytes, t.shard] for t in gguf.tensors.values()
        ],
    }


def _metadata_value(value: Any) -> tuple[Any, int | None]:
    """The value, or the first elements of an array and, where these are not all, its length."""
    if isinstance(value, (str, int, float)):
        return value, None
    if len(value) <= INLINE_LENGTH:
        return list(value), None
    return list(value[:PREVIEW_LENGTH]), len(value)
