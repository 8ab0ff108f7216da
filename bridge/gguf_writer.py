"""Write GGUF version 3 files: metadata, tensor table, then tensor data streamed piece by piece.

Knows the container and nothing about models. Memory stays constant however large the tensors are, because tensor data may
come from an iterator. Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple

from bridge.errors import InputError
from bridge.quants.types import QuantType, quant_type

MAGIC = b"GGUF"
VERSION = 3
DEFAULT_ALIGNMENT = 32
MAX_DIMENSIONS = 4

ARRAY_ID, STRING_ID, BOOL_ID = 9, 8, 7
SCALARS = {  # metadata value type: (id in the file, struct format)
    "uint8": (0, "<B"),
    "int8": (1, "<b"),
    "uint16": (2, "<H"),
    "int16": (3, "<h"),
    "uint32": (4, "<I"),
    "int32": (5, "<i"),
    "float32": (6, "<f"),
    "bool": (BOOL_ID, "<?"),
    "uint64": (10, "<Q"),
    "int64": (11, "<q"),
    "float64": (12, "<d"),
}
INTEGERS = {
    "uint32": (0, 2**32 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint64": (0, 2**64 - 1),
    "int64": (-(2**63), 2**63 - 1),
}


class Typed(NamedTuple):
    """A metadata value with its type spelt out: ``Typed("uint64", 7)``; for lists the elements' type."""

    type: str
    value: Any


def write_gguf(
    path_or_file: str | os.PathLike | BinaryIO, metadata: Mapping[str, Any], tensors: Iterable[tuple] = ()
) -> None:
    """Write one GGUF v3 file.

    ``metadata``: str, bytes (a string that need not be UTF-8), bool, int (uint32, or the next of int32, uint64, int64 that
    holds it), float (float32), lists of one of these (ints: int32 first), or ``Typed``.
    ``tensors``: ``(name, type, shape, data)`` with the type by name or number, the shape row-major (last dimension
    contiguous, the reverse of the file's order) and data as one buffer or an iterable of buffers, in block format.
    A path is written beside itself and renamed when complete, so a failure leaves no half file.
    Raises InputError for values, shapes or data sizes that do not fit.
    """
    if hasattr(path_or_file, "write"):
        _write(path_or_file, metadata, tensors)
        return
    partial = f"{os.fspath(path_or_file)}.part"
    try:
        with open(partial, "wb") as file:
            _write(file, metadata, tensors)
        os.replace(partial, path_or_file)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial)
        raise


def gguf_header(metadata: Mapping[str, Any], tensors: Iterable[tuple]) -> tuple[bytes, list[tuple[int, int]]]:
    """All bytes of a file before its tensor data, and where in the file each tensor's data begins and how long it is.

    Takes what ``write_gguf`` takes and never looks at the tensors' data. Raises InputError.
    """
    header, table = _laid_out(metadata, tensors)
    return header, [(len(header) + tensor.offset, tensor.nbytes) for tensor in table]


def _laid_out(metadata: Mapping[str, Any], tensors: Iterable[tuple]) -> tuple[bytes, list[_Tensor]]:
    alignment = _alignment(metadata)
    table: list[_Tensor] = []
    offset = 0  # counted from the start of the data section
    for row in tensors:
        table.append(_Tensor.checked(*row, offset))
        offset += table[-1].nbytes + _padding(table[-1].nbytes, alignment)
    names = [tensor.name for tensor in table]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"tensor {twice!r} is given twice")
    header = bytearray(MAGIC + struct.pack("<IQQ", VERSION, len(table), len(metadata)))
    for key, value in metadata.items():
        header += _string(key) + _typed_value(key, value)
    for tensor in table:
        header += _string(tensor.name) + struct.pack("<I", len(tensor.shape))
        header += struct.pack(f"<{len(tensor.shape)}Q", *reversed(tensor.shape))
        header += struct.pack("<IQ", tensor.type.id, tensor.offset)
    return bytes(header) + bytes(_padding(len(header), alignment)), table


def _write(file: BinaryIO, metadata: Mapping[str, Any], tensors: Iterable[tuple]) -> None:
    alignment = _alignment(metadata)
    header, table = _laid_out(metadata, tensors)
    file.write(header)
    for tensor in table:
        written = 0
        for piece in _pieces(tensor.data):
            written += len(piece)
            if written > tensor.nbytes:
                break
            file.write(piece)
        if written != tensor.nbytes:
            got = f"{written} bytes" if written < tensor.nbytes else f"more ({written} or more)"
            raise InputError(f"tensor {tensor.name!r} needs {tensor.nbytes} bytes of data, got {got}")
        file.write(bytes(_padding(tensor.nbytes, alignment)))


class _Tensor(NamedTuple):
    name: str
    type: QuantType
    shape: tuple[int, ...]
    data: Any
    nbytes: int
    offset: int

    @classmethod
    def checked(cls, name: str, type_: str | int | QuantType, shape: Iterable[int], data: Any, offset: int) -> _Tensor:
        type_ = quant_type(type_)
        shape = tuple(int(n) for n in shape)
        if not 1 <= len(shape) <= MAX_DIMENSIONS or min(shape) < 1:
            raise InputError(
                f"tensor {name!r} has shape {list(shape)}; 1 to {MAX_DIMENSIONS} positive dimensions are allowed"
            )
        if shape[-1] % type_.block_size:
            raise InputError(
                f"tensor {name!r} has rows of {shape[-1]} values; {type_.name} needs a multiple of {type_.block_size}"
            )
        n_values = 1
        for n in shape:
            n_values *= n
        return cls(name, type_, shape, data, n_values // type_.block_size * type_.type_size, offset)


def _pieces(data: Any) -> Iterator[memoryview]:
    try:
        view = memoryview(data)
    except TypeError:
        for piece in data:
            yield memoryview(piece).cast("B")
    else:
        yield view.cast("B")


def _alignment(metadata: Mapping[str, Any]) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    value = value.value if isinstance(value, Typed) else value
    if not isinstance(value, int) or value < 1 or value & (value - 1):
        raise InputError(f"general.alignment must be a power of two; got {value!r}")
    return value


def _padding(size: int, alignment: int) -> int:
    return -size % alignment


def _string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else bytes(text)
    return struct.pack("<Q", len(raw)) + raw


def _typed_value(key: str, value: Any) -> bytes:
    """The value as the file holds it: type id, then (for arrays) element type id and count, then the value."""
    declared, value = value if isinstance(value, Typed) else (None, value)
    if hasattr(value, "tolist"):  # array.array, numpy arrays and numpy scalars
        value = value.tolist()
    if not isinstance(value, (list, tuple)):
        type_id, encode = _encoder(key, declared or _scalar_type(key, value))
        return struct.pack("<I", type_id) + encode(value)
    head = struct.pack("<I", ARRAY_ID)
    if value and isinstance(value[0], (list, tuple)):  # a nested element is stored without its leading type id
        nested = (_typed_value(key, Typed(declared, item) if declared else item) for item in value)
        return head + struct.pack("<IQ", ARRAY_ID, len(value)) + b"".join(item[4:] for item in nested)
    type_id, encode = _encoder(key, declared or _element_type(key, value))
    return head + struct.pack("<IQ", type_id, len(value)) + b"".join(map(encode, value))


def _encoder(key: str, type_name: str):
    if type_name == "string":
        return STRING_ID, _string
    if type_name not in SCALARS:
        raise InputError(f"metadata {key!r} has type {type_name!r}; allowed: string, {', '.join(SCALARS)}")
    type_id, layout = SCALARS[type_name]

    def encode(value: Any) -> bytes:
        try:
            return struct.pack(layout, value)
        except (struct.error, OverflowError):
            raise InputError(f"metadata {key!r} holds {value!r}, which is no {type_name}") from None

    return type_id, encode


def _scalar_type(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, float):
        return "float32"
    if isinstance(value, (str, bytes)):
        return "string"
    if isinstance(value, int):
        return _integer_type(value, value, ("uint32", "int32", "uint64", "int64"))
    raise InputError(
        f"metadata {key!r} holds {type(value).__name__}; allowed: str, bytes, bool, int, float, lists of these"
    )


def _element_type(key: str, values: list) -> str:
    if not values:
        raise InputError(f"metadata {key!r} is an empty list; give its element type with Typed")
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return _integer_type(min(values), max(values), ("int32", "uint32", "int64", "uint64"))
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        return "float32"
    kinds = {_scalar_type(key, value) for value in values}
    if len(kinds) != 1:
        raise InputError(f"metadata {key!r} mixes {' and '.join(sorted(kinds))} in one list")
    return kinds.pop()


def _integer_type(low: int, high: int, choices: tuple[str, ...]) -> str:
    for name in choices:
        least, most = INTEGERS[name]
        if least <= low and high <= most:
            return name
    raise InputError(f"the integer {high if high > 0 else low} does not fit 64 bits")
