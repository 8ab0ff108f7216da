"""The sampler of one completion: options composed once into stages, then one call per token.

Two kinds of stage, in llama.cpp's order:

- vocabulary stages change the logits of the whole vocabulary in place: logit bias, penalties, and whatever else forces or
  forbids tokens (a thinking budget is one more of them);
- selection stages make one candidate set smaller or flatter: top-k, top-p, min-p, temperature.

Then the draw. A grammar is a constraint on the whole vocabulary: when it refuses a pick, sample again with it,
``sampler.sample(logits, constraint)``.
"""

from __future__ import annotations

import secrets
import sys
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import methodcaller

from bridge.errors import InputError
from bridge.sampling.candidate_list import CandidateList
from bridge.sampling.mersenne import MersenneTwister
from bridge.sampling.options import SamplingOptions, integer, number
from bridge.sampling.selection import DrawRule, Selection
from bridge.sampling.vocabulary_stages import Penalties, SparseScores, VocabularyStage, logit_bias

PENALTY_WINDOW = 64  # tokens; llama.cpp's default for penalty_last_n


class Sampler:
    """Picks tokens one after the other. ``seed`` is the seed in use, also when the options asked for a random one."""

    def __init__(self, options: SamplingOptions | None = None):
        self.options = options = options or SamplingOptions()
        self._penalties = Penalties(
            options.penalty, options.presence_penalty, options.frequency_penalty, PENALTY_WINDOW
        )
        self.vocabulary_stages: list[VocabularyStage] = []
        self._touched: list[Callable[[], Iterable[int]]] = []  # the tokens whose logits each of the first stages changes
        if options.logit_bias:
            self.vocabulary_stages.append(logit_bias(options.logit_bias))
            self._touched.append(options.logit_bias.keys)
        if self._penalties.active:
            self.vocabulary_stages.append(self._penalties.apply)
            self._touched.append(self._penalties.tokens)
        self.selection_stages = selection_stages(options)
        self._candidates = candidate_class(options)
        self.reset()

    def reset(self) -> None:
        """Forget the accepted tokens and start the random numbers again (with a new seed if it is a random one)."""
        self.seed = secrets.randbits(32) if self.options.seed is None else self.options.seed
        self._random = MersenneTwister(self.seed)
        self._penalties.clear()

    def sample(self, logits, constraint: VocabularyStage | None = None) -> int:
        """The next token for ``logits``: float32[n_vocab], any buffer or sequence of numbers; it is not accepted yet.

        Logits on a device may offer ``best_token()`` and ``best_tokens(k, also)`` (see bridge.sampling.selection.Selected),
        so that a whole vocabulary need not be copied for every token; the result is the same.

        ``constraint`` sees the logits of the whole vocabulary before every other stage and rules tokens out with -inf.
        Raises InputError if the logits are empty, hold NaN or +inf, or rule out every token.
        """
        if constraint is None and hasattr(logits, "best_tokens"):
            if self.options.greedy and not self.vocabulary_stages:
                token = logits.best_token()
                if token is not None:
                    return token
            found = self._selected_on_device(logits)
            if found is not None:
                return self._draw(self._select(found))
        return self._draw(self.candidates(logits, constraint))

    def _selected_on_device(self, logits) -> CandidateList | None:
        """The best candidates, as many as top-k keeps, when a device finds them; None when it takes the whole vocabulary.

        Bias and penalties change a few tokens: they are chosen from beside the k best of the others.
        """
        if not self._is_selective:
            return None
        k, n_vocab = self._k, len(logits)
        touched = sorted({token for tokens in self._touched for token in tokens() if 0 <= token < n_vocab})
        found = logits.best_tokens(k, touched) if k + len(touched) <= n_vocab else None
        if found is None:
            return None
        ids, values, touched_values = found
        scores = SparseScores(n_vocab, dict(zip(touched, touched_values)))
        for stage in self.vocabulary_stages:
            stage(scores)
        pairs = [*zip(ids, values), *scores.items()]
        best = sorted((-value, token) for token, value in pairs)[:k]
        return CandidateList.of_sorted([token for _, token in best], array("f", (-value for value, _ in best)))

    @property
    def _k(self) -> int:
        return 1 if self.options.greedy else self.options.top_k

    @property
    def _is_selective(self) -> bool:
        """Whether ``sample`` needs only some of the logits."""
        return self._k > 0 and len(self._touched) == len(self.vocabulary_stages)

    def selections(self, n: int = 1, after: Sequence[int] = ()) -> list[Selection]:
        """What ``sample`` will need of the logits of each of ``n`` tokens, as far as that is known before the first of them is
        drawn; none when it takes all logits. They are the next ones, or those behind the tokens ``after``, if these are
        sampled and accepted.
        """
        if not self._is_selective:
            return []
        options, biases = self.options, self.options.logit_bias
        rule = DrawRule(0.0 if options.greedy else options.temp, options.top_p, options.min_p, options.penalty,
                        options.presence_penalty, options.frequency_penalty)
        uniforms = [0.0] * n if options.greedy else self._random.peek_doubles(n, len(after))
        found = []
        for i, uniform in enumerate(uniforms):
            counts = self._penalties.counts(after, i) if rule.penalises else {}
            also = tuple(sorted({*counts, *biases}))
            found.append(Selection(self._k, also, tuple(counts.get(token, 0) for token in also),
                                   tuple(biases.get(token, 0.0) for token in also), uniform, rule))
        return found

    def pick(self, ids: Sequence[int], logits: Sequence[float]) -> int:
        """The next token among those a device has selected: best first, bias and penalties already applied."""
        return self._draw(self._select(CandidateList.of_sorted(ids, float32_copy(logits))))

    def accept(self, token: int) -> None:
        """Count ``token`` as generated: it enters the window of the penalties."""
        self._penalties.accept(integer("a token id", token))

    def candidates(self, logits, constraint: VocabularyStage | None = None):
        """The candidate set ``sample`` draws from; for greedy options the whole vocabulary."""
        scores = float32_copy(logits)
        for stage in (constraint, *self.vocabulary_stages) if constraint else self.vocabulary_stages:
            stage(scores)
        return self._select(self._candidates.of_vocabulary(scores))

    def _draw(self, found) -> int:
        return found.best() if self.options.greedy else found.draw(self._random.next_double())

    def _select(self, found):
        for stage in self.selection_stages:
            found = stage(found)
        return found


def candidates(
    logits,
    last_tokens: Iterable[int] = (),
    *,
    temp: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    penalty: float = 1.0,
    presence_penalty: float = 0.0,
    logit_bias: Mapping[int, float] | None = None,
) -> tuple[list[int], list[float]]:
    """The tokens that could be drawn next and their probabilities, best first (equal ones by id).

    ``last_tokens`` are the tokens generated so far, of which the last 64 are penalised. Every default leaves its stage
    out; at temperature 0 one token remains. ``top_p`` 0 keeps the best token, as in llama.cpp, where the page's options
    (SamplingOptions) take it as "off". Raises InputError as SamplingOptions and Sampler.sample do.
    """
    sampler = Sampler(
        SamplingOptions(
            temp=temp,
            top_k=1 if number("top_p", top_p) <= 0 else top_k,
            top_p=top_p,
            min_p=min_p,
            penalty=penalty,
            presence_penalty=presence_penalty,
            logit_bias=logit_bias,
            seed=0,
        )
    )
    for token in last_tokens:
        sampler.accept(token)
    found = sampler.candidates(logits)
    return ([found.best()], [1.0]) if sampler.options.greedy else found.best_first().to_lists()


def selection_stages(options: SamplingOptions) -> list[Callable]:
    """The stages that apply, as functions from one candidate set to the next; none for greedy options."""
    if options.greedy:
        return []
    stages = [
        (options.top_k > 0, methodcaller("top_k", options.top_k)),
        (options.top_p < 1, methodcaller("top_p", options.top_p)),
        (options.min_p > 0, methodcaller("min_p", options.min_p)),
        (options.temp != 1, methodcaller("divide", options.temp)),
    ]
    return [stage for applies, stage in stages if applies]


def candidate_class(options: SamplingOptions) -> type:
    """CandidateArray where numpy is loaded already or worth loading, else CandidateList; the results do not differ."""
    if "numpy" in sys.modules or options.wants_numpy:
        try:
            from bridge.sampling.candidate_array import CandidateArray
        except ModuleNotFoundError:  # Pyodide without its numpy package: slower for these options, but as right
            return CandidateList
        return CandidateArray
    return CandidateList


def float32_copy(logits) -> array:
    """The logits as an ``array("f")`` of our own, which the vocabulary stages may change."""
    try:
        view = memoryview(logits)
    except TypeError:  # no buffer: a sequence of numbers
        try:
            return array("f", logits)
        except TypeError:
            raise InputError(f"logits must be a buffer or sequence of numbers; got {type(logits).__name__}") from None
    if view.ndim != 1 or view.format not in ("f", "d", "e"):
        raise InputError(f"logits must be one vector of floats; got {view.ndim} dimensions of format {view.format!r}")
    scores = array("f")
    if view.format != "f":
        return array("f", logits)
    scores.frombytes(view.cast("B") if view.c_contiguous else view.tobytes())
    return scores
