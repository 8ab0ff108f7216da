"""GBNF text to rules, with llama.cpp's verdict on what is a grammar (``llama-grammar.cpp``, revision 0c1e57098).

Its rules where one might expect others: a new line ends a rule except inside parentheses and after ``::=`` and ``|``; names are
letters, digits and ``-``; the last definition of a name holds; an empty literal or class is nothing at all, so it cannot
be repeated; a count above 2000 is refused as a minimum and means "without end" as a maximum.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from bridge.sampling.grammar.charset import ANY_CHAR, CharSet
from bridge.sampling.grammar.errors import GrammarError
from bridge.sampling.grammar.rules import Alternative, Call, Chars, Element, Repeat, Rule, TokenRef

MAX_TEXT = 1 << 18  # characters; ours, so that the work has a bound
MAX_REPETITION = 2000  # llama.cpp's MAX_REPETITION_THRESHOLD
MAX_TOKEN = 2**32 - 1

NAME_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-")
DIGITS = frozenset("0123456789")
ESCAPES = {"t": "\t", "r": "\r", "n": "\n", **{char: char for char in '\\"[]-'}}
HEX_ESCAPES = {"x": 2, "u": 4, "U": 8}
QUANTIFIERS = {"*": (0, None), "+": (1, None), "?": (0, 1)}

TokenOfText = Callable[[str], int | None]


def parse(text: str, token_of_text: TokenOfText | None = None) -> tuple[list[Rule], dict[str, int]]:
    """The rules of a grammar and the numbers of the named ones; raises GrammarError.

    ``token_of_text`` gives the token that ``<think>`` stands for (None: it is not exactly one); without it only token ids,
    ``<[1000]>``, can be written.
    """
    return _Parser(text, token_of_text).parse()


@dataclass(slots=True)
class _Open:
    """Alternatives being read: those of a named rule, or of a group that begins at ``start``."""

    rule: int
    start: int
    symbols_before: int
    alternatives: list[Alternative] = field(default_factory=list)
    elements: list[Element] = field(default_factory=list)
    last: int = 0  # where the item that a quantifier would repeat begins in ``elements``
    weight: int = 1  # llama.cpp's number of rules in that item, which it limits

    def end_alternative(self) -> None:
        self.alternatives.append(tuple(self.elements))
        self.elements, self.last, self.weight = [], 0, 1

    def add(self, *elements: Element, weight: int = 1) -> None:
        self.last, self.weight = len(self.elements), weight
        self.elements += elements


class _Parser:
    def __init__(self, text: str, token_of_text: TokenOfText | None) -> None:
        if len(text) > MAX_TEXT:
            raise GrammarError(f"the grammar has {len(text)} characters; at most {MAX_TEXT} are allowed")
        if "\0" in text:
            raise self._error_in(text, text.index("\0"), "a NUL character cannot be part of a grammar")
        self._text, self._token_of_text = text + "\0", token_of_text  # the NUL spares a check at every look ahead
        self._at = 0
        self._rules: list[Rule] = []
        self._numbers: dict[str, int] = {}
        self._mentioned: dict[str, int] = {}
        self._symbols = 0  # names and generated rules, counted as llama.cpp does

    def parse(self) -> tuple[list[Rule], dict[str, int]]:
        self._skip_space(newlines=True)
        defined = set()
        while not self._ended:
            defined.add(self._rule())
        for name, at in self._mentioned.items():
            if name not in defined:
                raise self._error(f"rule {name!r} is used, but nothing defines it", at)
        return self._rules, self._numbers

    # Rules

    def _rule(self) -> str:
        start = self._at
        name = self._name()
        self._skip_space()
        if not self._text.startswith("::=", self._at):
            raise self._error(f"expected ::= after the name {name!r}")
        self._at += 3
        number = self._number(name)
        self._skip_space(newlines=True)
        self._rules[number].alternatives = self._alternatives(number, start)
        if self._peek == "\r":
            self._at += 2 if self._text[self._at + 1] == "\n" else 1
        elif self._peek == "\n":
            self._at += 1
        elif not self._ended:
            raise self._error("expected an item, | or the end of the line")
        self._skip_space(newlines=True)
        return name

    def _alternatives(self, number: int, start: int) -> list[Alternative]:
        """Everything after ::=, groups included; open groups are kept on a stack, so nesting has no limit."""
        stack = [_Open(number, start, self._symbols)]
        while True:
            top, char = stack[-1], self._peek
            if char == "(":
                stack.append(self._open_group(number))
            elif char == ")" and len(stack) > 1:
                stack.pop()
                top.end_alternative()
                self._rules[top.rule].alternatives = top.alternatives
                stack[-1].add(Call(top.rule), weight=self._symbols - top.symbols_before)
                self._step(newlines=len(stack) > 1)
            elif char == "|":
                top.end_alternative()
                self._step(newlines=True)
            elif not self._item(top, in_group=len(stack) > 1):
                break
        if len(stack) > 1:
            raise self._error("expected ) to close the group that was opened here", stack[-1].start)
        top.end_alternative()
        return top.alternatives

    def _open_group(self, number: int) -> _Open:
        start, before = self._at, self._symbols
        self._step(newlines=True)
        return _Open(self._anonymous(self._rules[number].name), start, before)

    def _item(self, top: _Open, in_group: bool) -> bool:
        """Read one item or quantifier; False if there is none."""
        char = self._peek
        if char == '"':
            top.add(*self._literal())
        elif char == "[":
            top.add(*self._class())
        elif char in ("<", "!"):
            top.add(self._token())
        elif char == ".":
            self._at += 1
            top.add(Chars(ANY_CHAR))
        elif char in NAME_CHARS:
            start = self._at
            name = self._name()
            self._mentioned.setdefault(name, start)
            top.add(Call(self._number(name)))
        elif char in QUANTIFIERS or char == "{":
            start = self._at
            least, most = self._counts(in_group) if char == "{" else QUANTIFIERS[char]
            self._at += char != "{"
            self._repeat(top, least, most, start)
        else:
            return False
        self._skip_space(in_group)
        return True

    # Repetition

    def _counts(self, in_group: bool) -> tuple[int, int | None]:
        self._step(in_group)
        least = most = self._integer("a number of repetitions")
        self._skip_space(in_group)
        if self._peek == ",":
            self._step(in_group)
            most = self._integer("a number of repetitions") if self._peek in DIGITS else None
            self._skip_space(in_group)
        if self._peek != "}":
            raise self._error("expected , or } in a count such as {2}, {2,} or {2,5}")
        self._at += 1
        return least, most

    def _repeat(self, top: _Open, least: int, most: int | None, at: int) -> None:
        """Replace the last item of ``top`` by its repetition."""
        if least > MAX_REPETITION or most is not None and most >= 2**64:
            raise self._error(f"a repetition count is {max(least, most or 0)}; at most {MAX_REPETITION} is allowed", at)
        if most is not None and most > MAX_REPETITION:
            most = None
        if most is not None and least > most:
            raise self._error(f"a repetition has minimum {least} and maximum {most}; the minimum must not be larger", at)
        if top.last == len(top.elements):
            raise self._error("expected an item before a quantifier", at)
        times = most or least or 1
        if top.weight * times > MAX_REPETITION:
            product = f"multiplies {top.weight} nested rules by {times}; the product must not exceed {MAX_REPETITION}"
            raise self._error(f"a repetition {product}", at)
        top.weight *= times
        self._symbols += 1 if most is None else most - least
        if least == most == 1:
            return
        body = tuple(top.elements[top.last :])
        del top.elements[top.last :]
        if most != 0:
            top.elements.append(Repeat(self._as_rule(body, top.rule), least, most))

    def _as_rule(self, body: Alternative, within: int) -> int:
        if len(body) == 1 and isinstance(body[0], Call):
            return body[0].rule
        self._rules.append(Rule(self._rules[within].name, [body], inline=True))
        return len(self._rules) - 1

    # Items

    def _literal(self) -> list[Element]:
        start, chars = self._at, []
        self._at += 1
        while self._peek != '"':
            code_point = self._char("a literal", start)
            chars.append(Chars(CharSet(((code_point, code_point),))))
        self._at += 1
        return chars

    def _class(self) -> list[Element]:
        start = self._at
        self._at += 1
        negated = self._peek == "^"
        self._at += negated
        ranges = []
        while self._peek != "]":
            first = last = self._char("a class", start)
            if self._peek == "-" and self._text[self._at + 1] != "]":
                self._at += 1
                last = self._char("a class", start)
            ranges.append((first, last))
        self._at += 1
        if not ranges:
            return []
        charset = CharSet.of(ranges)
        return [Chars(charset.negated() if negated else charset)]

    def _char(self, where: str, start: int) -> int:
        """One character of a literal or class, which may be written as an escape."""
        if self._ended:
            raise self._error(f"{where} that begins here has no end", start)
        at, char = self._at, self._peek
        self._at += 1
        if char != "\\":
            return ord(char)
        kind = self._peek
        self._at += 1
        if kind in ESCAPES:
            return ord(ESCAPES[kind])
        if kind not in HEX_ESCAPES:
            raise self._error('the escape is unknown; known are \\t \\r \\n \\\\ \\" \\[ \\] \\- \\xXX \\uXXXX \\UXXXXXXXX', at)
        digits = self._text[self._at : self._at + HEX_ESCAPES[kind]]
        if len(digits) != HEX_ESCAPES[kind] or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
            raise self._error(f"\\{kind} needs {HEX_ESCAPES[kind]} hexadecimal digits", at)
        self._at += len(digits)
        return int(digits, 16)

    def _token(self) -> TokenRef:
        start = self._at
        negated = self._peek == "!"
        self._at += negated
        if self._peek != "<":
            raise self._error("expected < after !, as in !<think> or !<[1000]>")
        if self._text[self._at + 1] == "[":
            self._at += 2
            token = self._integer("a token id")
            if token > MAX_TOKEN:
                raise self._error(f"a token id is {token}; at most {MAX_TOKEN} is allowed", start)
            if not self._text.startswith("]>", self._at):
                raise self._error("expected ]> after a token id")
            self._at += 2
            return TokenRef(token, negated)
        end = self._text.find(">", self._at)
        if end < 0:
            raise self._error("expected > to close the token that begins here", start)
        if self._token_of_text is None:
            problem = "a token can be written by its text only for a model's vocabulary; write its id, as in <[1000]>"
            raise self._error(problem, start)
        token = self._token_of_text(self._text[self._at : end + 1])
        if token is None:
            raise self._error("the text in <> must be exactly one token of the vocabulary, and is not", start)
        self._at = end + 1
        return TokenRef(token, negated)

    # Characters

    @property
    def _peek(self) -> str:
        return self._text[self._at]

    @property
    def _ended(self) -> bool:
        return self._at == len(self._text) - 1

    def _step(self, newlines: bool) -> None:
        """Past one character and the space behind it."""
        self._at += 1
        self._skip_space(newlines)

    def _skip_space(self, newlines: bool = False) -> None:
        space = " \t\r\n" if newlines else " \t"
        while True:
            char = self._peek
            if char == "#":
                while not self._ended and self._peek not in "\r\n":
                    self._at += 1
            elif char in space:
                self._at += 1
            else:
                return

    def _name(self) -> str:
        start = self._at
        while self._peek in NAME_CHARS:
            self._at += 1
        if start == self._at:
            if self._peek == "|":
                raise self._error("a new line ends a rule; alternatives can go on there only in parentheses or after |")
            raise self._error("expected the name of a rule (letters, digits and -)")
        return self._text[start : self._at]

    def _integer(self, what: str) -> int:
        start = self._at
        while self._peek in DIGITS:
            self._at += 1
        if start == self._at:
            raise self._error(f"expected {what}")
        digits = self._text[start : self._at].lstrip("0")
        if len(digits) > 20:  # those of 2**64; Python itself refuses to read thousands
            raise self._error(f"{what} has {len(digits)} digits; at most 20 are allowed", start)
        return int(digits or "0")

    def _number(self, name: str) -> int:
        """The number of a named rule, which may be defined later."""
        if name not in self._numbers:
            self._numbers[name] = self._anonymous(name)
        return self._numbers[name]

    def _anonymous(self, name: str) -> int:
        self._symbols += 1
        self._rules.append(Rule(name))
        return len(self._rules) - 1

    def _error(self, problem: str, at: int | None = None) -> GrammarError:
        return self._error_in(self._text, self._at if at is None else at, problem)

    @staticmethod
    def _error_in(text: str, at: int, problem: str) -> GrammarError:
        return GrammarError(problem, text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at))
