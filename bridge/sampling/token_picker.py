"""The next token of a completion: the sampler's pick, unless a grammar forbids it or a thinking budget forces another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bridge.errors import InputError
from bridge.sampling.sampler import Sampler

if TYPE_CHECKING:
    from bridge.sampling.grammar import GrammarConstraint
    from bridge.sampling.selection import Selection
    from bridge.sampling.thinking_budget import ThinkingBudget


class TokenPicker:
    """Picks and accepts tokens one after the other.

    A grammar is asked about the pick only, which is cheap, and applied to the whole vocabulary only when it refuses that. It
    pauses inside thinking blocks: it sees the start tag, but neither the block nor its end tag.
    """

    def __init__(
        self, sampler: Sampler, constraint: GrammarConstraint | None = None, budget: ThinkingBudget | None = None
    ) -> None:
        self._sampler, self._constraint, self._budget = sampler, constraint, budget

    def pick(self, logits) -> int:
        """The next token for float32[n_vocab]; it is not accepted yet.

        Raises GrammarRejection if the grammar allows none of the candidates, otherwise as ``Sampler.sample``.
        """
        if self._budget is not None and self._budget.forced is not None:
            return self._sample_forced(logits, self._budget)
        token = self._sampler.sample(logits)
        constraint = self._active_constraint
        if constraint is None or constraint.allows(token):
            return token
        from bridge.sampling.grammar import GrammarRejection

        try:
            token = self._sampler.sample(logits, constraint.apply)
        except InputError:  # the same logits could be sampled without the grammar, so it has left none
            raise GrammarRejection from None
        if not constraint.allows(token):
            raise GrammarRejection
        return token

    def selections(self, n: int = 1, after: Sequence[int] = ()) -> list[Selection]:
        """What ``pick`` will need of the logits of up to ``n`` tokens (see Sampler.selections); none when it takes all.

        What a budget will say to a token is known when it comes to that, so there is one token at a time.
        """
        if self._active_constraint is not None or (self._budget is not None and self._budget.forced is not None):
            return []
        return self._sampler.selections(n if self._budget is None else 1, after)

    def accept(self, token: int) -> None:
        """Go on by one token."""
        constraint = self._active_constraint
        self._sampler.accept(token)
        if self._budget is not None:
            self._budget.accept(token)
        if constraint is not None:
            constraint.accept(token)

    def _sample_forced(self, logits, budget: ThinkingBudget) -> int:
        # The stage is there only while it has something to say: with it a device cannot select the candidates itself.
        stages = self._sampler.vocabulary_stages
        stages.append(budget.apply)
        try:
            return self._sampler.sample(logits)
        finally:
            stages.pop()

    @property
    def _active_constraint(self) -> GrammarConstraint | None:
        return None if self._budget is not None and self._budget.in_block else self._constraint
