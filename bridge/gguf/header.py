"""The GGUF header parser: bytes in, a checked header out; it does no input or output of its own.

Layout (GGUF specification, versions 2 and 3, little-endian): magic "GGUF", u32 version, u64 tensor count, u64 metadata
count; then per metadata entry a string key, u32 value type and value; then per tensor a string name, u32 number of
dimensions, u64 sizes (innermost first), u32 ggml type and u64 offset into the data section. That section starts at the
next multiple of ``general.alignment`` (32 when absent).

Every count and length is compared with a named limit and then with the bytes that could hold it before anything is
allocated. Numbers stay Python integers, so nothing wraps.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from struct import Struct
from typing import Any

from bridge.errors import UnsupportedError
from bridge.quants.types import quant_type, row_nbytes

from .errors import GGUFError, GGUFLimitExceeded, GGUFTruncated, GGUFUnsupported
from .limits import DEFAULT_LIMITS, GGUFLimits
from .strings import U64, StringArray, StringRun
from .tensors import TensorInfo, check_placement, shown

MAGIC = b"GGUF"
DEFAULT_ALIGNMENT = 32
FIRST_READ = 256 * 1024
LARGEST_STEP = 3 * 1024 * 1024  # taken where nothing tells how much is left; what is read too much is at most this

U32 = Struct("<I")
BOOL, STRING, ARRAY = 7, 8, 9

# value type id -> (name, struct of one value, array.array typecode); bool, string and array are handled apart.
SCALARS = {
    0: ("u8", Struct("<B"), "B"),
    1: ("i8", Struct("<b"), "b"),
    2: ("u16", Struct("<H"), "H"),
    3: ("i16", Struct("<h"), "h"),
    4: ("u32", Struct("<I"), "I"),
    5: ("i32", Struct("<i"), "i"),
    6: ("f32", Struct("<f"), "f"),
    10: ("u64", Struct("<Q"), "Q"),
    11: ("i64", Struct("<q"), "q"),
    12: ("f64", Struct("<d"), "d"),
}
# What readers of these keys rely on; every published file has them so.
KNOWN_KEYS = {
    "general.alignment": "u32",
    "tokenizer.ggml.tokens": "array of string",
    "tokenizer.ggml.merges": "array of string",
    "tokenizer.ggml.scores": "array of f32",
    "tokenizer.ggml.token_type": "array of i32",
}
TYPE_NAMES = {BOOL: "bool", STRING: "string", ARRAY: "array", **{id_: row[0] for id_, row in SCALARS.items()}}


class Metadata(Mapping):
    """The key-value part of a header, read-only and in file order.

    Scalars are int, float, bool or str. Arrays are sequences: ``array.array`` for numbers, a list for bools and a
    ``StringArray`` for strings. ``value_type(key)`` gives the stored type, such as "u32" or "array of string".
    """

    def __init__(self, values: dict[str, Any], types: dict[str, str]):
        self._values = values
        self._types = types

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"<Metadata of {len(self)} keys>"

    def value_type(self, key: str) -> str:
        return self._types[key]


@dataclass(frozen=True, slots=True)
class GGUFHeader:
    """Everything in front of the tensor data. ``tensors`` is in file order; ``data_offset`` is where their data starts."""

    version: int
    metadata: Metadata
    tensors: dict[str, TensorInfo]
    data_offset: int
    alignment: int


class _Cursor:
    """A position in a prefix of the file; every read checks that the bytes are there."""

    __slots__ = ("data", "position")

    def __init__(self, data: bytes):
        self.data = data
        self.position = 0

    def require(self, nbytes: int, label: str) -> None:
        needed = self.position + nbytes
        if needed > len(self.data):
            message = f"{label} needs {needed} bytes from the start of the file, there are {len(self.data)}"
            raise GGUFTruncated(message, needed)

    def number(self, layout: Struct, label: str) -> int | float:
        self.require(layout.size, label)
        (value,) = layout.unpack_from(self.data, self.position)
        self.position += layout.size
        return value

    def take(self, nbytes: int, label: str) -> bytes:
        self.require(nbytes, label)
        start = self.position
        self.position += nbytes
        return self.data[start : self.position]

    def text(self, max_bytes: int, limit: str, label: str) -> str:
        length = self.number(U64, label)
        if length > max_bytes:
            raise GGUFLimitExceeded(f"{label} claims {length} bytes; the limit is {max_bytes} ({limit})")
        raw = self.take(length, label)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            wrong = raw[error.start]
            raise GGUFError(f"{label} is not UTF-8: byte {error.start} of its {length} is 0x{wrong:02x}") from None


class HeaderParser:
    """Parses a header from a growing prefix; what was read completely is not read again.

    ``parse(prefix)`` gives the header, or raises GGUFTruncated whose ``needed`` is the least prefix worth trying; any
    other GGUFError is final. ``size`` is the size of the whole file where it is known.
    """

    def __init__(self, size: int | None = None, limits: GGUFLimits = DEFAULT_LIMITS):
        self._size = size
        self._limits = limits
        self._resume_at = 0
        self._version = self._n_tensors = self._n_metadata = 0
        self._values: dict[str, Any] = {}
        self._types: dict[str, str] = {}
        self._string_run: StringRun | None = None
        self._entries: dict[str, tuple] = {}  # name -> (type, shape, offset in the data section, nbytes)

    def parse(self, prefix: bytes) -> GGUFHeader:
        cursor = _Cursor(prefix)
        if not self._resume_at:
            self._parse_counts(cursor)
            self._resume_at = cursor.position
        cursor.position = self._resume_at
        while len(self._values) < self._n_metadata:
            cursor.require((self._n_metadata - len(self._values)) * 13, f"metadata ({self._n_metadata} entries)")
            self._parse_entry(cursor)
            self._resume_at = cursor.position
        while len(self._entries) < self._n_tensors:
            cursor.require((self._n_tensors - len(self._entries)) * 33, f"the tensor table ({self._n_tensors} tensors)")
            self._parse_tensor(cursor)
            self._resume_at = cursor.position
        return self._finish(cursor.position)

    def _parse_counts(self, cursor: _Cursor) -> None:
        magic = cursor.data[:4]
        if magic != MAGIC[: len(magic)]:
            raise GGUFError(f"not a GGUF file: it starts with bytes {magic.hex(' ')}, not with {MAGIC.hex(' ')} (\"GGUF\")")
        cursor.take(4, "the magic")
        self._version = cursor.number(U32, "the version")
        if self._version & 0xFFFF == 0 and self._version:
            swapped = int.from_bytes(self._version.to_bytes(4, "little"), "big")
            raise GGUFUnsupported(f"this is a big-endian GGUF file (version {swapped}); only little-endian files are read")
        if self._version not in (2, 3):
            raise GGUFUnsupported(f"GGUF version {self._version} is not supported; versions 2 and 3 are")
        self._n_tensors = cursor.number(U64, "the tensor count")
        self._n_metadata = cursor.number(U64, "the metadata count")
        limits = self._limits
        for what, count, limit, name in (
            ("tensors", self._n_tensors, limits.max_tensors, "max_tensors"),
            ("metadata entries", self._n_metadata, limits.max_metadata_entries, "max_metadata_entries"),
        ):
            if count > limit:
                raise GGUFLimitExceeded(f"the header claims {count} {what}; the limit is {limit} ({name})")

    def _parse_entry(self, cursor: _Cursor) -> None:
        index = len(self._values)
        key = cursor.text(self._limits.max_key_bytes, "max_key_bytes", f"the key of metadata entry {index}")
        if not key:
            raise GGUFError(f"the key of metadata entry {index} is empty")
        if key in self._values:
            raise GGUFError(f"metadata key {shown(key)} appears twice")
        kind = cursor.number(U32, f"the value type of {shown(key)}")
        if kind == ARRAY:
            value, kind_name = self._parse_array(cursor, key)
        elif kind == STRING:
            value = cursor.text(self._limits.max_string_bytes, "max_string_bytes", f"the value of {shown(key)}")
            kind_name = "string"
        elif kind == BOOL:
            value, kind_name = _bools(cursor.take(1, f"the value of {shown(key)}"), key)[0], "bool"
        elif kind in SCALARS:
            kind_name, layout, _ = SCALARS[kind]
            value = cursor.number(layout, f"the value of {shown(key)}")
        else:
            raise GGUFError(f"metadata key {shown(key)} has unknown value type {kind}; known are 0 to {max(TYPE_NAMES)}")
        if kind_name != KNOWN_KEYS.get(key, kind_name):
            raise GGUFError(f"{key} is of type {kind_name}; it must be {KNOWN_KEYS[key]}")
        self._values[key] = value
        self._types[key] = kind_name

    def _parse_array(self, cursor: _Cursor, key: str) -> tuple[Any, str]:
        kind = cursor.number(U32, f"the element type of {shown(key)}")
        count = cursor.number(U64, f"the length of {shown(key)}")
        if kind == ARRAY:
            raise GGUFUnsupported(f"metadata key {shown(key)} is an array of arrays, which no known model uses")
        if kind not in TYPE_NAMES:
            raise GGUFError(
                f"metadata key {shown(key)} is an array of unknown value type {kind}; known are 0 to {max(TYPE_NAMES)}"
            )
        limit = self._limits.max_array_length
        if count > limit:
            raise GGUFLimitExceeded(
                f"metadata key {shown(key)} claims {count} array elements; the limit is {limit} (max_array_length)"
            )
        label = f"the array {shown(key)} ({count} × {TYPE_NAMES[kind]})"
        if kind == STRING:
            value = self._parse_strings(cursor, count, key)
        elif kind == BOOL:
            value = _bools(cursor.take(count, label), key)
        else:
            _, layout, typecode = SCALARS[kind]
            value = array(typecode)
            value.frombytes(cursor.take(count * layout.size, label))
            if sys.byteorder == "big":
                value.byteswap()
        return value, f"array of {TYPE_NAMES[kind]}"

    def _parse_strings(self, cursor: _Cursor, count: int, key: str) -> StringArray:
        run = self._string_run
        if run is None:  # else this array was begun on a shorter prefix
            run = StringRun(cursor.position, count, self._limits.max_string_bytes, f"the array {shown(key)}")
            self._string_run = run
        run.read(cursor.data)
        self._string_run = None
        cursor.position = run.position
        return StringArray(run.strings)

    def _parse_tensor(self, cursor: _Cursor) -> None:
        index = len(self._entries)
        limits = self._limits
        name = cursor.text(limits.max_tensor_name_bytes, "max_tensor_name_bytes", f"the name of tensor {index}")
        if not name:
            raise GGUFError(f"the name of tensor {index} is empty")
        if name in self._entries:
            raise GGUFError(f"tensor {shown(name)} appears twice")
        n_dims = cursor.number(U32, f"the dimensions of tensor {shown(name)}")
        if not 1 <= n_dims <= limits.max_dimensions:
            raise GGUFError(f"tensor {shown(name)} has {n_dims} dimensions; allowed are 1 to {limits.max_dimensions}")
        label = f"the table entry of tensor {shown(name)}"
        stored = [cursor.number(U64, label) for _ in range(n_dims)]
        type_id = cursor.number(U32, label)
        offset = cursor.number(U64, label)
        if 0 in stored or max(stored) >= 1 << 63 or prod(stored) >= 1 << 63:
            raise GGUFError(
                f"tensor {shown(name)} has shape {stored[::-1]}; sizes are at least 1 and their product is below 2^63"
            )
        try:
            type = quant_type(type_id)
        except UnsupportedError as error:
            raise GGUFUnsupported(f"tensor {shown(name)}: {error}") from None
        if stored[0] % type.block_size:
            raise GGUFError(
                f"tensor {shown(name)} has rows of {stored[0]} elements, "
                f"not a multiple of the {type.block_size} in a {type.name} block"
            )
        nbytes = row_nbytes(type, prod(stored))
        self._entries[name] = (type, tuple(reversed(stored)), offset, nbytes)

    def _finish(self, end: int) -> GGUFHeader:
        alignment = self._alignment()
        data_offset = -(-end // alignment) * alignment
        tensors = []
        for name, (type, shape, offset, nbytes) in self._entries.items():
            if offset % alignment:
                raise GGUFError(
                    f"tensor {shown(name)} starts at data offset {offset}, not a multiple of the alignment {alignment}"
                )
            tensors.append(TensorInfo(name, type, shape, data_offset + offset, nbytes))
        ordered = check_placement(tensors, self._size)
        metadata = Metadata(self._values, self._types)
        return GGUFHeader(self._version, metadata, {tensor.name: tensor for tensor in ordered}, data_offset, alignment)

    def _alignment(self) -> int:
        key = "general.alignment"
        if key not in self._values:
            return DEFAULT_ALIGNMENT
        alignment, limit = self._values[key], self._limits.max_alignment
        if not 1 <= alignment <= limit or alignment & (alignment - 1):
            raise GGUFError(f"{key} is {alignment}; it must be a power of two from 1 to {limit}")
        return alignment


def header_reads(size: int | None, limits: GGUFLimits = DEFAULT_LIMITS) -> Generator[tuple[int, int], bytes, GGUFHeader]:
    """Parse a header by asking for bytes: yields ``(offset, length)``, is sent those bytes, returns the header.

    Whoever drives it decides how bytes are read, so the sync and the async reader share it. With an unknown ``size``
    (None) an answer may be shorter than asked, which means that the file ends there.
    """
    parser = HeaderParser(size, limits)
    prefix, wanted = b"", FIRST_READ
    while True:
        wanted = min(wanted, limits.max_header_bytes, limits.max_header_bytes if size is None else size)
        more = yield len(prefix), wanted - len(prefix)
        prefix += more
        if len(prefix) < wanted:
            size = len(prefix)
        try:
            return parser.parse(prefix)
        except GGUFTruncated as truncated:
            if size is not None and truncated.needed > size:
                message = f"the file ends inside its header: {truncated}; the file has {size} bytes"
                raise GGUFTruncated(message, truncated.needed) from None
            if truncated.needed > limits.max_header_bytes:
                raise GGUFLimitExceeded(
                    f"the header needs at least {truncated.needed} bytes; "
                    f"the limit is {limits.max_header_bytes} (max_header_bytes)"
                ) from None
            wanted = max(truncated.expected, len(prefix) + min(len(prefix), LARGEST_STEP))


def _bools(raw: bytes, key: str) -> list[bool]:
    wrong = raw.translate(None, b"\0\1")
    if wrong:
        raise GGUFError(f"metadata key {shown(key)} holds a bool of value {wrong[0]}; allowed are 0 and 1")
    return list(map(bool, raw))
