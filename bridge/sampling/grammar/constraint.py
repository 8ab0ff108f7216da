"""A grammar while a text is generated: which tokens it allows now, and where the text stands in it."""

from __future__ import annotations

from array import array

from bridge.errors import InputError
from bridge.sampling.grammar.errors import GrammarRejection
from bridge.sampling.grammar.grammar import Grammar
from bridge.sampling.grammar.masks import TokenMask
from bridge.sampling.grammar.reader import Place
from bridge.sampling.grammar.vocabulary import TokenizerLike, spelling


class GrammarConstraint:
    """Follows one text, from its beginning; ``apply`` is a constraint for ``Sampler.sample``.

    Everything that is found out on the way belongs to the grammar and serves later texts too, so a clone costs nothing.
    The methods may raise AmbiguityError.
    """

    def __init__(self, grammar: Grammar, tokenizer: TokenizerLike) -> None:
        self._grammar, self._tokenizer = grammar, tokenizer
        self.reset()

    def reset(self) -> None:
        """Go back to the beginning."""
        self._place: Place = self._grammar.reader.start

    def clone(self) -> GrammarConstraint:
        """A constraint at the same place that goes on by itself."""
        copy = GrammarConstraint(self._grammar, self._tokenizer)
        copy._place = self._place
        return copy

    @property
    def may_end(self) -> bool:
        """Whether the text so far is a whole one."""
        return self._grammar.reader.may_end(self._place)

    def mask(self) -> TokenMask:
        """The tokens that may come next, end tokens included where the text may end."""
        return self._grammar.masks_for(self._tokenizer).mask(self._place)

    def apply(self, scores: array) -> None:
        """Rule out, with -infinity, every token that may not come next; raises GrammarRejection if none may."""
        mask = self.mask()
        if not mask:
            raise GrammarRejection
        mask.apply(scores)

    def allows(self, token: int) -> bool:
        """Whether ``token`` may come next; costs far less than a mask."""
        return self._after(token) is not None

    def accept(self, token: int) -> None:
        """Go on by one token; raises InputError if it may not come next."""
        place = self._after(token)
        if place is None:
            raise InputError(f"token {token} was accepted, but the grammar does not allow it here")
        self._place = place

    def _after(self, token: int) -> Place | None:
        if token in self._tokenizer.eog_ids:
            return self._place if self.may_end else None
        return self._grammar.reader.after_token(self._place, token, spelling(self._tokenizer, token))
