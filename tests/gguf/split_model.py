"""Splits a GGUF file the way llama.cpp's gguf-split does: all metadata in the first shard, ``split.*`` in each."""

from __future__ import annotations

from pathlib import Path

from bridge.gguf import GGUFFile, open_gguf
from bridge.gguf_writer import Typed, write_gguf

# The reader's names of value types in the writer's words.
WRITER_TYPES = {
    "bool": "bool", "string": "string", "f32": "float32", "f64": "float64",
    **{f"{letter}{bits}": f"{name}{bits}" for letter, name in (("u", "uint"), ("i", "int")) for bits in (8, 16, 32, 64)},
}  # fmt: skip


def split_keys(number: int, count: int, n_tensors: int) -> dict:
    """``number`` counts from 0, as in the file."""
    return {
        "split.no": Typed("uint16", number),
        "split.count": Typed("uint16", count),
        "split.tensors.count": Typed("int32", n_tensors),
    }


def write_shards(source, folder: Path, per_shard: list[int], stem: str = "model") -> list[Path]:
    """The shards of ``source`` (what ``open_gguf`` takes), ``per_shard[i]`` tensors in shard i."""
    with open_gguf(source) as file:
        names = list(file.tensors)
        assert sum(per_shard) == len(names)
        paths = []
        for i, n in enumerate(per_shard):
            keys = (metadata_of(file) if i == 0 else {}) | split_keys(i, len(per_shard), sum(per_shard))
            tensors = [_tensor(file, name) for name in names[:n]]
            names = names[n:]
            paths.append(folder / f"{stem}-{i + 1:05}-of-{len(per_shard):05}.gguf")
            write_gguf(paths[-1], keys, tensors)
    return paths


def metadata_of(file: GGUFFile) -> dict:
    """The metadata in the writer's terms, each value with the type it has."""
    values = {}
    for key, value in file.metadata.items():
        type = file.metadata.value_type(key).removeprefix("array of ")
        values[key] = Typed(WRITER_TYPES[type], value if isinstance(value, (str, int, float)) else list(value))
    return values


def _tensor(file: GGUFFile, name: str) -> tuple:
    info = file.tensors[name]
    return name, info.dtype, info.shape, file.bytes(name)
