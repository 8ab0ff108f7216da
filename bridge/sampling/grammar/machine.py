"""Following a grammar: a state is every way to read the text so far, and characters lead from state to state.

The ways share what they have in common (a graph-structured stack: Tomita 1987, "An efficient augmented-context-free parsing
algorithm"), so that their number stays polynomial where separate stacks would double with every character. States are
made when first reached and kept, so text that repeats itself costs one look-up per character.
"""

from __future__ import annotations

from bisect import bisect_right
from heapq import heapify, heappop, heappush
from weakref import WeakValueDictionary

from bridge.sampling.grammar.errors import AmbiguityError
from bridge.sampling.grammar.network import END, Network
from bridge.sampling.grammar.rules import Chars, TokenRef

MAX_EFFORT = 4000  # ways that go on at one character, shared ones counted each time; usual grammars need a few dozen
MAX_OVERLAPS = 1_000_000  # (piece of the code points, item that allows it) pairs of one state
MAX_STATES = 20_000  # kept for reuse; some 2 KB each


class Frame:
    """What is to be done after a rule: every way to go on that led into it."""

    __slots__ = ("__weakref__", "ways")

    def __init__(self, ways: frozenset[Way]) -> None:
        self.ways = ways


Way = tuple[int, int, Frame | None]
"""A position, how many times the repetition there is completed, and the frame of the rule it is in."""
DONE: Way = (-1, 0, None)
"""The only way to go on after the root rule."""

Item = tuple[int, Frame]
"""The position of a character or token, and the frame of the rule it is in."""
Range = tuple[int, int]
Target = "frozenset[Item] | State | None"
Successor = "tuple[State, tuple[Range, ...]]"


class State:
    """``complete``: the text may end here. Made by Machine only, which knows one object for equal states."""

    __slots__ = ("complete", "items", "next_states", "starts", "successors", "targets", "within")

    def __init__(self, items: frozenset[Item], complete: bool) -> None:
        self.items, self.complete = items, complete
        self.forget()

    def forget(self) -> None:
        """Drop what can be found out again."""
        self.next_states: dict[str, State | None] = {}
        self.starts: list[int] = []
        self.targets: list[Target] = []
        self.successors: list[Successor] | None = None
        self.within: dict[tuple[Range, ...], State | None] = {}


class Machine:
    """Follows one grammar from ``start``. ``n_states`` counts the states made, kept or not, ``effort`` the ways looked at.

    Methods raise AmbiguityError when following the text would take more than a bounded effort.
    """

    def __init__(self, network: Network, root: int) -> None:
        self._network = network
        self._frames: WeakValueDictionary[frozenset[Way], Frame] = WeakValueDictionary()
        self._states: dict[tuple[frozenset[Item], bool], State] = {}
        self._after: dict[frozenset[Item], State] = {}
        self.n_states = self.effort = 0
        self.start = self._enter({root: {DONE}}, set(), complete=network.nullable[root], effort=0)

    # Characters

    def step(self, state: State, code_point: int) -> State | None:
        """The state after one more character, None if the grammar does not allow it."""
        starts, targets = self._divided(state)
        return self._target(targets, bisect_right(starts, code_point) - 1)

    def run(self, state: State, text: str, start: int = 0) -> State | None:
        """The state after ``text[start:]``."""
        for char in text[start:] if start else text:
            try:
                state = state.next_states[char]
            except KeyError:
                before = state
                state = self.step(before, ord(char))
                if char < "\x80":
                    before.next_states[char] = state
            if state is None:
                return None
        return state

    def lives_within(self, state: State, first: int, last: int) -> bool:
        """Whether some character from ``first`` to ``last`` is allowed."""
        return any(target is not None for target in self._targets(state, first, last))

    def lives_throughout(self, state: State, first: int, last: int) -> bool:
        """Whether every character from ``first`` to ``last`` is allowed."""
        return None not in self._targets(state, first, last)

    def step_within(self, state: State, ranges: tuple[Range, ...]) -> State | None:
        """The one state to which every character of ``ranges`` leads; None if there is none or more than one."""
        try:
            return state.within[ranges]
        except KeyError:
            found = state.within[ranges] = self._step_within(state, ranges)
            return found

    def successors(self, state: State) -> list[Successor]:
        """The states one character away, each with the ranges of characters that lead to it."""
        if state.successors is None:
            starts, targets = self._divided(state)
            ranges: dict[State, list[Range]] = {}
            for index, first in enumerate(starts[:-1]):  # the last piece has no end and is never allowed
                target, last = self._target(targets, index), starts[index + 1] - 1
                if target is not None:
                    found = ranges.setdefault(target, [])
                    if found and found[-1][1] == first - 1:
                        found[-1] = (found[-1][0], last)
                    else:
                        found.append((first, last))
            state.successors = [(target, tuple(found)) for target, found in ranges.items()]
        return state.successors

    # Tokens

    def token_refs(self, state: State) -> list[TokenRef]:
        """The tokens that the grammar names or excludes here by id."""
        elements = (self._network.elements[position] for position, _ in state.items)
        return [element for element in elements if isinstance(element, TokenRef)]

    def step_token(self, state: State, token: int) -> State | None:
        """The state after a token taken as a whole; None where the grammar expects only characters or other tokens."""
        taken = []
        for item in state.items:
            element = self._network.elements[item[0]]
            if isinstance(element, TokenRef) and (element.token == token) != element.negated:
                taken.append(item)
        return self._state_after(frozenset(taken)) if taken else None

    def union(self, first: State, second: State | None) -> State:
        """The state that holds the ways of both."""
        if second is None:
            return first
        return self._state(first.items | second.items, first.complete or second.complete)

    # Pieces of the code points

    def _divided(self, state: State) -> tuple[list[int], list[Target]]:
        """Where the code points fall into pieces on which the same items are allowed, and where each piece leads.

        Only the items are noted at first; the states come when needed.
        """
        if state.starts:
            return state.starts, state.targets
        begin: dict[int, list[Item]] = {0: []}
        end: dict[int, list[Item]] = {}
        for item in state.items:
            element = self._network.elements[item[0]]
            if isinstance(element, Chars):
                for first, last in element.charset.ranges:
                    begin.setdefault(first, []).append(item)
                    end.setdefault(last + 1, []).append(item)
        allowed: set[Item] = set()
        targets: list[Target] = []
        starts = sorted(begin.keys() | end.keys())
        n_overlaps = 0
        for start in starts:
            allowed.difference_update(end.get(start, ()))
            allowed.update(begin.get(start, ()))
            n_overlaps += len(allowed)
            if n_overlaps > MAX_OVERLAPS:
                raise AmbiguityError(f"more than {MAX_OVERLAPS} character classes of the grammar overlap at one place")
            targets.append(frozenset(allowed) or None)
        state.starts, state.targets = starts, targets
        return starts, targets

    def _targets(self, state: State, first: int, last: int) -> list[Target]:
        starts, targets = self._divided(state)
        return targets[bisect_right(starts, first) - 1 : bisect_right(starts, last)]

    def _target(self, targets: list[Target], index: int) -> State | None:
        target = targets[index]
        if isinstance(target, frozenset):
            target = targets[index] = self._state_after(target)
        return target

    def _step_within(self, state: State, ranges: tuple[Range, ...]) -> State | None:
        starts, targets = self._divided(state)
        found = None
        for first, last in ranges:
            for index in range(bisect_right(starts, first) - 1, bisect_right(starts, last)):
                target = self._target(targets, index)
                if target is None or target is not (found or target):
                    return None
                found = target
        return found

    # States

    def _state_after(self, items: frozenset[Item]) -> State:
        """The state after the characters or tokens that these items allow."""
        found = self._after.get(items)
        if found is None:
            found = self._go_on({(after, 0, frame) for position, frame in items for after in self._network.after[position]})
            self._after[items] = found
        return found

    def _go_on(self, ways: set[Way]) -> State:
        """Follow the ways to characters and tokens, into rules, and out of rules that end."""
        network = self._network
        items: set[Item] = set()
        calls: dict[int, set[Way]] = {}
        complete = False
        seen, work = ways, list(ways)
        effort = 0
        while work:
            position, completed, frame = work.pop()
            element = network.elements[position]
            if isinstance(element, (Chars, TokenRef)):
                items.add((position, frame))
                continue
            if position == END:
                further = frame.ways
                if DONE in further:
                    complete, further = True, further - {DONE}
            else:
                step, may_pass = network.step(position, completed)
                entered = frame.ways if step.back is None else ((*step.back, frame),)
                calls.setdefault(step.rule, set()).update(entered)
                effort += len(entered) - 1
                further = [(following, 0, frame) for following in network.after[position]] if may_pass else ()
            effort += 1
            self._check(effort)
            new = [way for way in further if way not in seen]
            seen.update(new)
            work += new
        return self._enter(calls, items, complete, effort)

    def _enter(self, calls: dict[int, set[Way]], items: set[Item], complete: bool, effort: int) -> State:
        """Enter rules, callers before the called, so that each has one frame with the ways of everyone who entered it."""
        network = self._network
        waiting = [(network.order[rule], rule) for rule in calls]
        heapify(waiting)
        while waiting:
            rank = waiting[0][0]
            group = {heappop(waiting)[1]}
            while waiting and waiting[0][0] == rank:
                group.add(heappop(waiting)[1])
            for rule in self._share_tails(group, rank, calls):
                frame = self._frame(frozenset(calls[rule]))
                entry = network.entries[rule]
                items.update((terminal, frame) for terminal in entry.terminals)
                for called, back in entry.steps:
                    if network.order[called] == rank:
                        continue  # within a cycle there are only tail calls, which are settled
                    if called not in calls:
                        calls[called] = set()
                        heappush(waiting, (network.order[called], called))
                    entered = frame.ways if back is None else ((*back, frame),)
                    calls[called].update(entered)
                    effort += len(entered) - 1
                self._check(effort)
        self.effort += effort + len(items)
        return self._state(frozenset(items), complete)

    def _share_tails(self, group: set[int], rank: int, calls: dict[int, set[Way]]) -> set[int]:
        """With ``group`` the rules that it enters by tail calls within its cycle; their ways are completed in ``calls``."""
        work = list(group)
        while work:
            rule = work.pop()
            for called, _ in self._network.entries[rule].steps:
                if self._network.order[called] == rank and not calls[rule] <= calls.get(called, set()):
                    calls.setdefault(called, set()).update(calls[rule])
                    group.add(called)
                    work.append(called)
        return group

    def _frame(self, ways: frozenset[Way]) -> Frame:
        found = self._frames.get(ways)
        if found is None:
            found = self._frames[ways] = Frame(ways)
        return found

    def _state(self, items: frozenset[Item], complete: bool) -> State:
        found = self._states.get((items, complete))
        if found is None:
            if len(self._states) >= MAX_STATES:
                self._forget()
            found = self._states[items, complete] = State(items, complete)
            self.n_states += 1
        return found

    def _forget(self) -> None:
        """Let go of all states but those that others hold, and of what these know about their successors."""
        for state in self._states.values():
            state.forget()
        self._states.clear()
        self._after.clear()

    def _check(self, effort: int) -> None:
        if effort > MAX_EFFORT:
            raise AmbiguityError("the grammar is too ambiguous: the text so far can be read in too many ways")
