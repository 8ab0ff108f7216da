"""Split models: the tensors of one model over several files, ``name-00001-of-00003.gguf`` and so on.

Layout (llama.cpp's gguf-split): every shard is a GGUF file of its own with the keys ``split.no`` (from 0),
``split.count`` and ``split.tensors.count`` (tensors of the whole set); only the first holds the other metadata. File
names count from 1. Here a set is read as if its files lay end to end, so that an offset names a byte of the set.

Files that were glued with ``cat`` are not that: the second file's header then lies behind the first one's data, where
no reader looks. Such files are recognised and refused.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .errors import GGUFError
from .header import MAGIC, GGUFHeader, header_reads
from .limits import GGUFLimits
from .tensors import TensorInfo, shown

MAX_SHARDS = 512
_SHARD_NAME = re.compile(r"(.*)-(\d{4,6})-of-(\d{4,6})\.gguf", re.ASCII | re.DOTALL | re.IGNORECASE)
MERGE_ADVICE = "merge the shards with llama-gguf-split --merge, not with cat"

Reads = Generator[tuple[int, int], bytes, GGUFHeader]


def shard_names(name: str) -> tuple[list[str], int] | None:
    """The names of all files of the set that ``name`` belongs to, and its own index; None where it names no shard.

    ``name`` may be a path or a URL with a query; numbers are padded to the wider of the two that it has.
    """
    path, query = name, ""
    if "://" in name:
        path = re.split("[?#]", name, maxsplit=1)[0]
        query = name[len(path) :]
    match = _SHARD_NAME.fullmatch(path)
    if match is None:
        return None
    stem, *numbers = match.groups()
    width, number, count = max(map(len, numbers)), *map(int, numbers)
    if not 2 <= count <= MAX_SHARDS or not 1 <= number <= count:
        return None
    return [f"{stem}-{i:0{width}}-of-{count:0{width}}.gguf{query}" for i in range(1, count + 1)], number - 1


def model_reads(sizes: Sequence[int | None], limits: GGUFLimits, *, known: Mapping[int, GGUFHeader] | None = None,
                seekable: bool = True) -> Reads:
    """Parse the headers of a model whose files have these ``sizes``, in the way of ``header_reads``.

    Offsets asked for are those of the set. ``known`` holds headers that were parsed before, by index. ``seekable`` allows
    reads behind the data, which find files glued together.
    """
    headers, start = [], 0
    for i, size in enumerate(sizes):
        header = (known or {}).get(i)
        if header is None:
            header = yield from _shifted(_file_reads(size, limits, seekable), start, shard_label(i, len(sizes)))
        headers.append(header)
        start += size or 0
    return headers[0] if len(sizes) == 1 else _join(headers, sizes)


def split_count(header: GGUFHeader) -> int:
    """How many files the model of this header is split into."""
    return max(1, _split_number(header, "split.count", 1, "the file"))


def refuse_lone_shard(header: GGUFHeader, size: int | None) -> None:
    """Raise GGUFError where the header is one of several."""
    count = split_count(header)
    if count == 1:
        return
    number = _split_number(header, "split.no", 0, "the file") + 1
    glued = f"; if this file was made by joining them, {MERGE_ADVICE}" if size and size > _data_end(header) else ""
    raise GGUFError(f"the file is shard {number} of {count} of a split model, and all {count} are needed{glued}")


def shard_label(index: int, count: int) -> str:
    """What messages call a file of a set; nothing where there is only one."""
    return f"shard {index + 1} of {count}" if count > 1 else ""


def name_shard(error: Exception, label: str) -> Exception:
    """``error``, its sentence beginning with the shard that it is about; what else it carries stays."""
    if label:
        error.args = (f"{label}: {error}", *error.args[1:])
    return error


def _file_reads(size: int | None, limits: GGUFLimits, seekable: bool) -> Reads:
    header = yield from header_reads(size, limits)
    if seekable and size is not None:
        yield from _refuse_glued(header, size)
    return header


def _refuse_glued(header: GGUFHeader, size: int) -> Generator[tuple[int, int], bytes, None]:
    """Look for the magic of a second file where the data ends, before or after the padding that writers add."""
    end = _data_end(header)
    padded = -(-end // header.alignment) * header.alignment
    if size < padded + len(MAGIC):
        return
    tail = yield end, padded + len(MAGIC) - end
    for at in sorted({end, padded}):
        if tail[at - end :].startswith(MAGIC):
            raise GGUFError(
                f"the file is two GGUF files glued together: its own data ends at byte {end} and another header begins at "
                f"byte {at}; {MERGE_ADVICE}"
            )


def _data_end(header: GGUFHeader) -> int:
    return max((tensor.end for tensor in header.tensors.values()), default=header.data_offset)


def _shifted(reads: Reads, start: int, label: str) -> Reads:
    """``reads`` of a file that begins at byte ``start`` of the set; errors name it."""
    try:
        offset, length = next(reads)
        while True:
            data = yield start + offset, length
            offset, length = reads.send(data)
    except StopIteration as finished:
        return finished.value
    except GGUFError as error:
        raise name_shard(error, label) from None


def _join(headers: Sequence[GGUFHeader], sizes: Sequence[int]) -> GGUFHeader:
    """One header for the set: the first shard's metadata, the tensors of all; raises GGUFError for no such set."""
    first, count = headers[0], len(headers)
    tensors: dict[str, TensorInfo] = {}
    start = 0
    for i, (header, size) in enumerate(zip(headers, sizes)):
        _check_numbers(header, i, count)
        _check_same_model(header.metadata, first.metadata, i, count)
        for name, tensor in header.tensors.items():
            if name in tensors:
                raise GGUFError(
                    f"tensor {shown(name)} is in shard {tensors[name].shard + 1} and again in {shard_label(i, count)}: "
                    "the files are not of one set"
                )
            tensors[name] = replace(tensor, offset=start + tensor.offset, shard=i)
        start += size
    total = _split_number(first, "split.tensors.count", len(tensors), shard_label(0, count))
    if total != len(tensors):
        raise GGUFError(
            f"the {count} shards hold {len(tensors)} tensors, their split.tensors.count is {total}: "
            "the files are not of one set, or one of them is incomplete"
        )
    return replace(first, tensors=tensors)


def _check_numbers(header: GGUFHeader, index: int, count: int) -> None:
    label = shard_label(index, count)
    own_count = _split_number(header, "split.count", None, label)
    if own_count != count:
        raise GGUFError(f"{label} says that it is one of {own_count} files, {count} were given")
    number = _split_number(header, "split.no", None, label)
    if number != index:
        raise GGUFError(
            f"the file in the place of {label} says that it is shard {number + 1}: the shards are shuffled or one is "
            "there twice"
        )


def _check_same_model(metadata: Mapping[str, Any], first: Mapping[str, Any], index: int, count: int) -> None:
    """Keys that a shard repeats must have the first shard's values; so must the number of tensors in all."""
    for key, value in metadata.items():
        if key in ("split.no", "split.count") or not isinstance(value, (str, int)):
            continue
        if key in first and first[key] != value:
            raise GGUFError(
                f"the shards are of different models: {shown(key)} in {shard_label(index, count)} is not what the first "
                "shard says"
            )


def _split_number(header: GGUFHeader, key: str, default: int | None, label: str) -> int:
    value = header.metadata.get(key, default)
    if value is None:
        raise GGUFError(f"{label} has no {key}, so it is no shard of a split model")
    if isinstance(value, bool) or not isinstance(value, int):
        raise GGUFError(f"{key} of {label} is of type {header.metadata.value_type(key)}; it must be an integer")
    if value < 0:
        raise GGUFError(f"{key} of {label} is {value}; it must be at least 0")
    return value
