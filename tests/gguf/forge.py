"""Writes small GGUF files field by field, so that a test can get any one of them wrong.

Values are written as they are given: counts, lengths, types and offsets may lie.
"""

from __future__ import annotations

import struct

VALUE_TYPES = {
    "u8": (0, "<B"), "i8": (1, "<b"), "u16": (2, "<H"), "i16": (3, "<h"), "u32": (4, "<I"), "i32": (5, "<i"), "f32": (6, "<f"),
    "bool": (7, "<B"), "string": (8, None), "array": (9, None), "u64": (10, "<Q"), "i64": (11, "<q"), "f64": (12, "<d"),
}  # fmt: skip


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def string(text: str | bytes, length: int | None = None) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return u64(len(raw) if length is None else length) + raw


def value(kind: str, content) -> bytes:
    id_, layout = VALUE_TYPES[kind]
    return u32(id_) + (string(content) if kind == "string" else struct.pack(layout, content))


def array(kind: str, items, count: int | None = None) -> bytes:
    id_, layout = VALUE_TYPES[kind]
    body = b"".join(string(item) if kind == "string" else struct.pack(layout, item) for item in items)
    return u32(9) + u32(id_) + u64(len(items) if count is None else count) + body


def entry(key: str | bytes, raw_value: bytes) -> bytes:
    return string(key) + raw_value


def tensor(name: str | bytes, dims, type_id: int, offset: int, n_dims: int | None = None) -> bytes:
    """``dims`` as the file has them: innermost first."""
    return (
        string(name) + u32(len(dims) if n_dims is None else n_dims) + b"".join(map(u64, dims)) + u32(type_id) + u64(offset)
    )


def gguf(
    entries=(), tensors=(), data: bytes = b"", *, version=3, magic=b"GGUF", n_tensors=None, n_entries=None, alignment=32
) -> bytes:
    head = magic + u32(version)
    head += u64(len(tensors) if n_tensors is None else n_tensors) + u64(len(entries) if n_entries is None else n_entries)
    head += b"".join(entries) + b"".join(tensors)
    return head + bytes(-len(head) % alignment) + data


def small_model() -> bytes:
    """A good file with every kind of value, and two tensors: F32 (2, 4) and Q8_0 (3, 64)."""
    entries = [
        entry("general.architecture", value("string", "llama")),
        entry("general.name", value("string", "naïve 模型")),
        *(entry(f"test.{kind}", value(kind, 7)) for kind in ("u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64")),
        entry("test.f32", value("f32", 0.5)),
        entry("test.f64", value("f64", 0.1)),
        entry("test.bool", value("bool", 1)),
        entry("test.flags", array("bool", [1, 0, 1])),
        entry("test.scores", array("f32", [0.5, -1.0])),
        entry("test.types", array("i32", [1, -2, 3])),
        entry("test.empty", array("string", [])),
        entry("tokenizer.ggml.tokens", array("string", ["", "a", "é", "\0", "x" * 300, "last"])),
    ]
    f32 = struct.pack("<8f", *range(8))
    q8_0 = b"".join(struct.pack("<e", 0.5) + bytes(range(i, i + 32)) for i in range(6))
    tensors = [tensor("a.weight", [4, 2], 0, 0), tensor("b.weight", [64, 3], 8, 32)]
    return gguf(entries, tensors, f32 + q8_0)
