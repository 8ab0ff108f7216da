"""Turns the kernel files under ``kernels/wgsl`` into WGSL sources for one variant.

Integers become constants (``const WORKGROUP: u32 = 64u;``) that the text uses by name. What WGSL cannot say is said in
comment lines, so that the files stay readable as WGSL:

    //@ include formats/k_scales.wgsl       (or a variant's string: //@ include ${FORMAT})
    //@ include FILE as OTHER             (once more, for the values OTHER_FORMAT, OTHER_GROUP, …: all that the
                                          format's file declares, and ``weight``, gets the prefix OTHER_, too)
    //@ include FILE with NAME=TEXT …    (with further strings)
    //@ if NAME  …  //@ else  …  //@ end    (also: if not NAME)
    //@ for r in ROWS  …  ${r}  …  //@ end  (ROWS copies, or as many as a number says;
                                          compilers of software adapters do not unroll loops)
    ${r+OUTS}, ${g*QUADS+j}                (sums and products of integers)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from bridge.kernels import kernel_text

Values = Mapping[str, int | bool | str]

_DIRECTIVE = re.compile(r"^\s*//@ (.+)$")
_DECLARATION = re.compile(r"(?:fn|struct|const|alias) (\w+)")
_SUBSTITUTION = re.compile(r"\$\{(\w+)(?:\*(\w+))?(?:\+(\w+))?\}")


def kernel_source(file: str, values: Values) -> str:
    """The WGSL source of a kernel file for a variant; ``values`` are its integers, flags and strings.

    Raises KeyError for a value the file needs and was not given, ValueError for a directive that makes no sense.
    """
    constants = [f"const {name}: u32 = {value}u;" for name, value in values.items() if type(value) is int]
    body = [*_expand(_lines("common.wgsl"), values), *_expand(_lines(file), values)]
    enabled = [line for line in body if line.startswith("enable ")]  # WGSL wants these before all else
    return "\n".join([*enabled, *constants, *(line for line in body if line not in enabled), ""])


def _lines(file: str) -> list[str]:
    return kernel_text(f"wgsl/{file}").splitlines()


def _expand(lines: list[str], values: Values) -> Iterator[str]:
    position = 0
    while position < len(lines):
        line = lines[position]
        position += 1
        directive = _DIRECTIVE.match(line)
        if directive is None:
            yield _substituted(line, values)
            continue
        match directive[1].split():
            case ["include", file]:
                yield from _expand(_lines(_substituted(file, values)), values)
            case ["include", file, "with", *strings]:
                further = dict(text.split("=") for text in strings)
                yield from _expand(_lines(_substituted(file, values)), {**values, **further})
            case ["include", file, "as", prefix]:
                yield from _expand_other(_substituted(file, _others(values, prefix)), values, prefix)
            case ["if", *condition]:
                then, otherwise, position = _block(lines, position)
                yield from _expand(then if _holds(condition, values) else otherwise, values)
            case ["for", variable, "in", count]:
                body, _, position = _block(lines, position)
                for i in range(int(count) if count.isdigit() else values[count]):
                    yield from _expand(body, {**values, variable: i})
            case _:
                raise ValueError(f"kernel directive {directive[1]!r} is not one of include, if, else, for, end")


def _others(values: Values, prefix: str) -> Values:
    start = f"{prefix}_"
    return {**values, **{name.removeprefix(start): v for name, v in values.items() if name.startswith(start)}}


def _expand_other(file: str, values: Values, prefix: str) -> Iterator[str]:
    others = _others(values, prefix)
    declared = {match[1] for line in _expand(_lines(others["FORMAT"]), others) if (match := _DECLARATION.match(line))}
    renamed = re.compile(rf"\b({'|'.join(sorted(declared | {'weight', 'GROUP', 'QUADS'}))})\b")
    for line in _expand(_lines(file), others):
        yield renamed.sub(rf"{prefix}_\1", line)


def _substituted(text: str, values: Values) -> str:
    def value(name: str) -> int | str:
        return int(name) if name.isdigit() else values[name]

    def result(match: re.Match[str]) -> str:
        name, factor, summand = match.groups()
        found = value(name) * value(factor) if factor else value(name)
        return str(found + value(summand) if summand else found)

    return _SUBSTITUTION.sub(result, text)


def _holds(condition: list[str], values: Values) -> bool:
    match condition:
        case [name]:
            return bool(values[name])
        case ["not", name]:
            return not values[name]
    raise ValueError(f"a kernel condition is NAME or not NAME, got {' '.join(condition)!r}")


def _block(lines: list[str], position: int) -> tuple[list[str], list[str], int]:
    """The lines up to the matching ``end``, those after a matching ``else``, and where to go on."""
    parts: tuple[list[str], list[str]] = ([], [])
    part, depth = 0, 0
    for i in range(position, len(lines)):
        directive = _DIRECTIVE.match(lines[i])
        word = directive[1].split()[0] if directive else ""
        if word == "end" and depth == 0:
            return *parts, i + 1
        if word == "else" and depth == 0:
            part = 1
            continue
        depth += (word in ("if", "for")) - (word == "end")
        parts[part].append(lines[i])
    raise ValueError("a kernel directive has no matching end")
