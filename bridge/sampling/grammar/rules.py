"""A grammar as data: rules, their alternatives, and the elements of which alternatives are made.

Groups and repeated sequences are rules of their own without a name, so that nothing is nested.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bridge.sampling.grammar.charset import CharSet


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of a set."""

    charset: CharSet


@dataclass(frozen=True, slots=True)
class TokenRef:
    """One whole token, or with ``negated`` any other one, whatever its text."""

    token: int
    negated: bool


@dataclass(frozen=True, slots=True)
class Call:
    """Whatever rule number ``rule`` matches."""

    rule: int


@dataclass(frozen=True, slots=True)
class Repeat:
    """Rule number ``rule``, ``least`` to ``most`` times; ``most`` None is without end."""

    rule: int
    least: int
    most: int | None


Element = Chars | TokenRef | Call | Repeat
Alternative = tuple[Element, ...]


@dataclass(slots=True)
class Rule:
    """``name`` is the named rule it belongs to, ``inline`` says that it only holds the elements a quantifier repeats."""

    name: str
    alternatives: list[Alternative] = field(default_factory=list)
    inline: bool = False
