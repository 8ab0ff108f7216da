"""Show what a GGUF file holds: sizes, tensor types, parameters, the largest tensor, and whether it would run here.

Only the header is read, so a URL of a large model costs a few megabytes.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any
from urllib.parse import urlsplit

from bridge.commands.arguments import add_json, add_model
from bridge.models.pooling import POOLINGS

GB, MIB, KIB = 1e9, 2**20, 2**10
LONG_LIST = 16  # metadata lists beyond this are summarised: vocabularies and merge tables have 10^5 entries


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    parser.add_argument("--tensors", action="store_true", help="list every tensor with its shape, type and size")
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    from bridge.gguf import open_gguf

    with open_gguf(arguments.model) as file:
        found = describe(file)
        if arguments.json:
            print(json.dumps(found, ensure_ascii=False))
        else:
            print("\n".join((shown_name(arguments.model), *report(found, arguments.tensors))))


def describe(file) -> dict[str, Any]:
    """The file as plain data; ``missing`` says what keeps it from running on each backend, or null.

    Shapes are row-major: ``[n_out, n_in]`` for a matrix, the reverse of the file's order.

    Of a split model ``shards`` are the sizes of its files, and offsets count from the start of the first.
    """
    from bridge.runtime.support import missing_for

    shards = file.source.shards
    tensors = [
        {"name": t.name, "type": t.type.name, "shape": list(t.shape), "offset": t.offset, "nbytes": t.nbytes}
        | ({"shard": t.shard} if len(shards) > 1 else {})
        for t in file.tensors.values()
    ]
    types: dict[str, dict[str, int]] = {}
    for tensor in file.tensors.values():
        entry = types.setdefault(tensor.type.name, {"tensors": 0, "parameters": 0, "nbytes": 0})
        entry["tensors"] += 1
        entry["parameters"] += tensor.n_elements
        entry["nbytes"] += tensor.nbytes
    return {
        "size": file.size,
        "shards": list(shards),
        "version": file.version,
        "architecture": file.architecture,
        "n_tensors": len(tensors),
        "n_parameters": sum(entry["parameters"] for entry in types.values()),
        "types": dict(sorted(types.items())),
        "largest": max(tensors, key=lambda tensor: tensor["nbytes"], default=None),
        "missing": missing_for(file.metadata, file.tensors),
        "metadata": {key: plain(value) for key, value in file.metadata.items()},
        "tensors": tensors,
        "bytes_read": file.bytes_read,
    }


def report(found: dict[str, Any], list_tensors: bool) -> list[str]:
    """The lines under the file's name."""
    files = f" in {len(found['shards'])} files" if len(found["shards"]) > 1 else ""
    lines = [
        f"  {amount(found['size'], ('GB', GB), ('MB', 1e6))} on disk{files}, GGUF v{found['version']}",
        f"  {found['n_tensors']} tensors, {amount(found['n_parameters'], ('B', 1e9), ('M', 1e6), gap='')} parameters",
    ]
    lines += [
        f"    {name:<7} {entry['tensors']:>5} tensors {entry['nbytes'] / MIB:>9.1f} MiB"
        for name, entry in found["types"].items()
    ]
    if found["largest"]:
        lines.append(f"  largest: {tensor_line(found['largest'])}")
    lines += [f"  {line}" for line in (*model_lines(found), *support_lines(found["missing"]))]
    if list_tensors:
        lines += [f"    {tensor_line(tensor)}" for tensor in found["tensors"]]
    lines.append(f"  {found['bytes_read'] / KIB:.0f} KiB read")
    return lines


def model_lines(found: dict[str, Any]) -> list[str]:
    """Architecture, layers, context and vocabulary, as far as the metadata has them."""
    metadata, architecture = found["metadata"], found["architecture"]
    if architecture is None:
        return []
    parts = [architecture]
    for key, label in (
        ("block_count", "{} layers"),
        ("embedding_length", "width {}"),
        ("context_length", "context {}"),
    ):
        value = metadata.get(f"{architecture}.{key}")
        if value is not None:
            parts.append(label.format(value))
    pooling = metadata.get(f"{architecture}.pooling_type")
    if isinstance(pooling, int) and 0 < pooling < len(POOLINGS):
        parts.append(f"pooling {POOLINGS[pooling]}")
    tokens = metadata.get("tokenizer.ggml.tokens")
    if tokens is not None:
        n_tokens = tokens["length"] if isinstance(tokens, dict) else len(tokens)
        kind = "/".join(str(metadata[key]) for key in ("tokenizer.ggml.model", "tokenizer.ggml.pre") if key in metadata)
        parts.append(f"{n_tokens} tokens ({kind})")
    return [", ".join(parts)]


BACKEND_NAMES = {"simd": "the CPU", "webgpu": "WebGPU"}


def support_lines(missing: dict[str, str | None]) -> list[str]:
    """Where the model would run, and what is missing where it would not."""
    reasons: dict[str, list[str]] = {}
    for backend, name in BACKEND_NAMES.items():
        reasons.setdefault(missing[backend] or "", []).append(name)
    return [f"does not run on {' or '.join(names)}: {reason}" if reason else f"runs on {' and '.join(names)}"
            for reason, names in sorted(reasons.items())]


def tensor_line(tensor: dict[str, Any]) -> str:
    """``name [n_in, n_out] type, size``: dimensions in the file's order here, as other GGUF tools print them."""
    dimensions = ", ".join(str(n) for n in reversed(tensor["shape"]))
    return f"{tensor['name']} [{dimensions}] {tensor['type']}, {tensor['nbytes'] / MIB:.1f} MiB"


def amount(value: float, large: tuple[str, float], small: tuple[str, float], gap: str = " ") -> str:
    """In the large unit if that shows two digits of it, else in the small one."""
    unit, size = large if value >= large[1] / 100 else small
    return f"{value / size:.2f}{gap}{unit}"


def plain(value: Any) -> Any:
    """A metadata value for JSON; long lists become their length and first elements."""
    if isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "replace")
    items = [plain(value[i]) for i in range(min(len(value), LONG_LIST))]
    return items if len(value) <= LONG_LIST else {"length": len(value), "first": items}


def shown_name(model: str) -> str:
    """A path as given; of a URL the last part, without what may be a secret."""
    if model.lower().startswith(("http://", "https://")):
        return os.path.basename(urlsplit(model).path) or urlsplit(model).hostname or "model"
    return model
