"""Left recursion: rules that would have to match themselves before they have read anything.

A grammar is followed by keeping every way to read the text so far, which left recursion makes infinitely many.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bridge.sampling.grammar.errors import GrammarError
from bridge.sampling.grammar.rules import Alternative, Call, Chars, Element, Repeat, Rule, TokenRef


def check_left_recursion(rules: Sequence[Rule]) -> None:
    """Refuse what llama.cpp refuses; raises GrammarError naming the rule.

    llama.cpp looks behind a rule only if one of its alternatives is written as empty, and refuses any cycle, also one that
    could be followed. ``Network`` refuses the cycles that this leaves.
    """
    empty = _written_empty(rules)
    edges = [list(_left_corners(rule, empty)) for rule in rules]
    for rule, (_, is_cyclic) in zip(rules, components(edges), strict=True):
        if is_cyclic:
            raise left_recursive(rule)
        for element in (element for alternative in rule.alternatives for element in alternative):
            if isinstance(element, Repeat) and element.most is None and empty[element.rule]:
                raise GrammarError(f"rule {rule.name!r} repeats without end what can be empty, which is left recursion")


def left_recursive(rule: Rule) -> GrammarError:
    return GrammarError(f"rule {rule.name!r} is left-recursive: it can come back to itself before it has read a character")


def _written_empty(rules: Sequence[Rule]) -> list[bool]:
    """For each rule whether it has an alternative without elements, or holds inline only elements that may be passed."""
    empty = [() in rule.alternatives for rule in rules]
    for number, rule in enumerate(rules):  # what is repeated twice, as in "a"+*, comes in the order of the quantifiers
        if rule.inline:
            empty[number] = all(_may_be_passed(element, empty) for element in rule.alternatives[0])
    return empty


def _may_be_passed(element: Element, empty: Sequence[bool]) -> bool:
    match element:
        case Chars() | TokenRef():
            return False
        case Repeat(least=0):
            return True
        case Call(rule) | Repeat(rule):
            return empty[rule]


def _left_corners(rule: Rule, empty: Sequence[bool]) -> Iterator[int]:
    """The rules that can come first in ``rule``."""
    for alternative in rule.alternatives:
        for element in alternative:
            if isinstance(element, (Call, Repeat)):
                yield element.rule
            if not _may_be_passed(element, empty):
                break


def nullable(rules: Sequence[Rule]) -> list[bool]:
    """For each rule whether it can match nothing at all."""
    found = [False] * len(rules)
    waiting: list[list[tuple[int, int]]] = [[] for _ in rules]  # per rule the (rule, alternative) that wait for it
    missing: dict[tuple[int, int], int] = {}
    ready = []
    for number, rule in enumerate(rules):
        for index, alternative in enumerate(rule.alternatives):
            needed = _needed(alternative)
            if needed is None:
                continue
            if not needed:
                ready.append(number)
            missing[number, index] = len(needed)
            for called in needed:
                waiting[called].append((number, index))
    while ready:
        number = ready.pop()
        if found[number]:
            continue
        found[number] = True
        for key in waiting[number]:
            missing[key] -= 1
            if not missing[key]:
                ready.append(key[0])
    return found


def _needed(alternative: Alternative) -> list[int] | None:
    """The rules that must be nullable for the alternative to be; None if it cannot be."""
    needed = []
    for element in alternative:
        if isinstance(element, (Chars, TokenRef)):
            return None
        if isinstance(element, Call) or element.least:
            needed.append(element.rule)
    return needed


def components(edges: Sequence[Sequence[int]]) -> list[tuple[int, bool]]:
    """For each node the number of its strongly connected component, and whether it lies on a cycle.

    An edge never leads to a component with a higher number. Tarjan 1972, "Depth-first search and linear graph
    algorithms", without recursion.
    """
    order = [-1] * len(edges)
    low = [0] * len(edges)
    found: list[tuple[int, bool] | None] = [None] * len(edges)
    path: list[int] = []
    work: list[tuple[int, Iterator[int]]] = []
    n_visited = n_components = 0

    def visit(node: int) -> None:
        nonlocal n_visited
        order[node] = low[node] = n_visited
        n_visited += 1
        path.append(node)
        work.append((node, iter(edges[node])))

    for root in range(len(edges)):
        if order[root] < 0:
            visit(root)
        while work:
            node, successors = work[-1]
            for other in successors:
                if order[other] < 0:
                    visit(other)
                    break
                if found[other] is None:
                    low[node] = min(low[node], order[other])
            else:
                work.pop()
                if work:
                    above = work[-1][0]
                    low[above] = min(low[above], low[node])
                if low[node] == order[node]:
                    members = [path.pop()]
                    while members[-1] != node:
                        members.append(path.pop())
                    is_cyclic = len(members) > 1 or node in edges[node]
                    for member in members:
                        found[member] = (n_components, is_cyclic)
                    n_components += 1
    return found
