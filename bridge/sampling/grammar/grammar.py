"""One grammar, ready to be asked about text or followed token by token."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from bridge.sampling.grammar.errors import GrammarError
from bridge.sampling.grammar.machine import Machine
from bridge.sampling.grammar.masks import Masks
from bridge.sampling.grammar.network import Network
from bridge.sampling.grammar.parser import TokenOfText, parse
from bridge.sampling.grammar.reader import Reader
from bridge.sampling.grammar.vocabulary import TokenizerLike, vocabulary_of

ROOT = "root"
GRAMMARS_KEPT = 4  # per tokenizer: calls tend to come with the same grammar again


class Grammar:
    """A GBNF grammar with the rule ``root``, as llama.cpp understands it; raises GrammarError if it does not.

    ``token_of_text`` resolves tokens written by their text, ``<think>``, which mean something only to one vocabulary. The
    methods may raise AmbiguityError.
    """

    def __init__(self, text: str, token_of_text: TokenOfText | None = None) -> None:
        if not isinstance(text, str):
            raise GrammarError(f"a grammar must be a str; got {type(text).__name__}")
        rules, numbers = parse(text, token_of_text)
        if ROOT not in numbers:
            raise GrammarError(f"the grammar has no rule named {ROOT!r}, where every text begins")
        self.reader = Reader(Machine(Network(rules), numbers[ROOT]))
        self._masks: WeakKeyDictionary[TokenizerLike, Masks] = WeakKeyDictionary()

    @classmethod
    def for_tokenizer(cls, text: str, tokenizer: TokenizerLike) -> Grammar:
        """The grammar with its token references resolved; one that was used lately comes back with all it has found out."""
        latest = _LATEST.setdefault(tokenizer, {})
        found = latest.pop(text, None) or cls(text, _token_lookup(tokenizer))
        if len(latest) >= GRAMMARS_KEPT:
            del latest[next(iter(latest))]
        latest[text] = found
        return found

    def accepts(self, data: bytes) -> bool:
        """Whether ``data`` is a whole text of the grammar; NUL bytes are passed over."""
        place = self.reader.after_bytes(self.reader.start, data.replace(b"\0", b""))
        return place is not None and self.reader.may_end(place)

    def allows_prefix(self, data: bytes) -> bool:
        """Whether the grammar can be followed through ``data``, which may end within a character."""
        return self.reader.after_bytes(self.reader.start, data.replace(b"\0", b"")) is not None

    def masks_for(self, tokenizer: TokenizerLike) -> Masks:
        """The masks of this grammar for a tokenizer's vocabulary."""
        found = self._masks.get(tokenizer)
        if found is None:
            found = self._masks[tokenizer] = Masks(self.reader, vocabulary_of(tokenizer))
        return found


_LATEST: WeakKeyDictionary[TokenizerLike, dict[str, Grammar]] = WeakKeyDictionary()


def _token_lookup(tokenizer: TokenizerLike) -> TokenOfText:
    def token_of_text(text: str) -> int | None:
        tokens = tokenizer.encode(text, add_special=False, parse_special=True)
        return tokens[0] if len(tokens) == 1 else None

    return token_of_text
