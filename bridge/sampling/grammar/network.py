"""A grammar as numbered positions, and from each what can come next before a character is read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bridge.sampling.grammar.recursion import check_left_recursion, components, left_recursive, nullable
from bridge.sampling.grammar.rules import Alternative, Call, Chars, Element, Repeat, Rule, TokenRef

Return = tuple[int, int]
"""Where to go on after a rule: a position, and how many times the repetition there has been completed."""


class Step(NamedTuple):
    """A rule that is entered; ``back`` is None where nothing is left to do after it (a tail call)."""

    rule: int
    back: Return | None


class Entry(NamedTuple):
    """What a rule can begin with: positions of characters or tokens, and the rules entered before there is any."""

    terminals: tuple[int, ...]
    steps: tuple[Step, ...]


END = 0
"""The position at the end of every alternative."""


class Network:
    """``elements[position]`` is what stands there, None at ``END``; ``after[position]`` are the positions that follow it.

    ``nullable`` tells of each rule whether it can match nothing. ``order`` gives each rule a number that never falls from a
    rule to one it enters at once; rules of the same number enter each other, by tail calls only.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        check_left_recursion(rules)
        self.nullable = nullable(rules)
        self.elements: list[Element | None] = [None]
        self.after: list[list[int]] = [[]]
        self._steps: dict[Return, tuple[Step, bool]] = {}
        self.entries = [self._entry(self._lay_out(rule.alternatives)) for rule in rules]
        component = components([[step.rule for step in entry.steps] for entry in self.entries])
        for rule, entry, (number, _) in zip(rules, self.entries, component, strict=True):
            if any(step.back and component[step.rule][0] == number for step in entry.steps):
                raise left_recursive(rule)  # each round would leave one more thing to do, without end
        self.order = [-number for number, _ in component]

    def step(self, position: int, completed: int = 0) -> tuple[Step, bool]:
        """The rule entered at a position where a repetition has been completed so many times, and whether it may be passed."""
        found = self._steps.get((position, completed))
        if found is None:
            element = self.elements[position]
            may_pass = self.nullable[element.rule]
            if isinstance(element, Call):
                back = self._unless_tail(position)
            else:
                back = self._after_round(position, element, completed + 1)
                may_pass = may_pass or completed >= element.least
            found = self._steps[position, completed] = Step(element.rule, back), may_pass
        return found

    def _lay_out(self, alternatives: Sequence[Alternative]) -> list[int]:
        """Where the alternatives begin; characters that several have at the beginning get one position for all."""
        starts: list[int] = []
        work = [(alternatives, 0, starts)]
        while work:
            group, depth, begins = work.pop()
            alike: dict[Chars | None, list[Alternative]] = {}
            for alternative in group:
                first = alternative[depth] if depth < len(alternative) else None
                alike.setdefault(first if isinstance(first, Chars) else None, []).append(alternative)
            for first, members in alike.items():
                if first is None or len(members) == 1:
                    begins += dict.fromkeys(self._lay_line(member[depth:]) for member in members)
                else:
                    begins.append(self._add(first, []))
                    work.append((members, depth + 1, self.after[-1]))
        return starts

    def _lay_line(self, elements: Alternative) -> int:
        """The first position of elements that follow each other."""
        if not elements:
            return END
        first = len(self.elements)
        for position, element in enumerate(elements, start=first):
            self._add(element, [position + 1])
        self.after[-1] = [END]
        return first

    def _add(self, element: Element, after: list[int]) -> int:
        self.elements.append(element)
        self.after.append(after)
        return len(self.elements) - 1

    def _entry(self, starts: Iterable[int]) -> Entry:
        terminals: list[int] = []
        steps: list[Step] = []
        for position in starts:
            # Whoever enters a nullable rule passes it by as well, so its end is not reached without a character.
            while position != END:
                element = self.elements[position]
                if isinstance(element, (Chars, TokenRef)):
                    terminals.append(position)
                    break
                step, may_pass = self.step(position)
                steps.append(step)
                if not may_pass:
                    break
                [position] = self.after[position]
        return Entry(tuple(terminals), tuple(dict.fromkeys(steps)))

    def _after_round(self, position: int, repeat: Repeat, completed: int) -> Return | None:
        if completed == repeat.most:
            return self._unless_tail(position)
        # Without a maximum nobody needs to know how often beyond the minimum.
        return position, min(completed, repeat.least) if repeat.most is None else completed

    def _unless_tail(self, position: int) -> Return | None:
        """Where to go on after a rule; only characters are followed by more than one position."""
        [following] = self.after[position]
        return None if following == END else (following, 0)
