"""What can go wrong with a grammar: its text, its ambiguity, and a model that has nothing allowed to say."""

from __future__ import annotations

from bridge.errors import BridgeError


class GrammarError(BridgeError):
    """The text is not a usable grammar; the message says what was expected and where (``line``, ``column``, from 1)."""

    code = "INVALID_GRAMMAR"

    def __init__(self, problem: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(problem if line is None else f"{problem} (line {line}, column {column} of the grammar)")
        self.line, self.column = line, column


class AmbiguityError(GrammarError):
    """The text so far can be read in too many ways at once for the grammar to be followed any further."""

    code = "AMBIGUOUS_GRAMMAR"


class GrammarRejection(BridgeError):
    """No token continues the text as the grammar demands."""

    code = "GRAMMAR_REJECTED"

    def __init__(self) -> None:
        super().__init__("Grammar rejected every candidate token")
