"""What a WGSL source takes of a device's limits, read from its text."""

from __future__ import annotations

import re
from dataclasses import dataclass

SCALAR_NBYTES = {"f32": 4, "u32": 4, "i32": 4, "bool": 4, "f16": 2}
_DECLARED = re.compile(r"^(?:const (\w+)(?:: \w+)? = (.+)|alias (\w+) = (.+));", re.M)
_IN_WORKGROUP = re.compile(r"var<workgroup> \w+: (.+);")
_WORKGROUP = re.compile(r"@workgroup_size\(([^)]+)\)")
_VECTOR = re.compile(r"vec([234])<(\w+)>")


@dataclass(frozen=True)
class Usage:
    storage_buffers: int
    uniform_buffers: int
    workgroup_nbytes: int
    invocations: int


def usage_of(source: str) -> Usage:
    source = re.sub(r"//.*", "", source)
    names: dict[str, str] = {}
    for constant, value, alias, type_name in _DECLARED.findall(source):
        names[constant or alias] = value or type_name
    sizes = _WORKGROUP.search(source)[1].split(",")
    invocations = 1
    for size in sizes:
        invocations *= _integer(size, names)
    return Usage(source.count("var<storage"), source.count("var<uniform>"),
                 sum(-(-_nbytes(type_name, names) // 16) * 16 for type_name in _IN_WORKGROUP.findall(source)), invocations)


def _integer(expression: str, names: dict[str, str]) -> int:
    """The value of an expression of unsigned integers and constants."""
    expanded = re.sub(r"[A-Za-z_]\w*", lambda m: str(_integer(names[m[0]], names)), re.sub(r"(\d)u\b", r"\1", expression))
    if not re.fullmatch(r"[\d\s()+*/-]+", expanded):
        raise ValueError(f"{expression!r} is no expression of integers")
    return eval(expanded.replace("/", "//"))


def _nbytes(type_name: str, names: dict[str, str]) -> int:
    type_name = names.get(type_name, type_name).strip()
    if type_name.startswith("array<"):
        element, _, count = type_name[6:-1].rpartition(",")
        return _nbytes(element.strip(), names) * _integer(count, names)
    if type_name.startswith("atomic<"):
        return 4
    if vector := _VECTOR.fullmatch(type_name):
        return SCALAR_NBYTES[vector[2]] * (4 if vector[1] == "3" else int(vector[1]))
    return SCALAR_NBYTES[type_name]
