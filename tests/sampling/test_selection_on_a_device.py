"""Logits that a device looks through itself give the same tokens as those that are copied out."""

import random

import numpy as np
import pytest

from bridge.errors import InputError
from bridge.sampling import Sampler, SamplingOptions
from bridge.sampling.mersenne import MersenneTwister

N_VOCAB = 500


class DeviceLogits:
    """What bridge.sampling.selection.Selected offers; counts how often the whole vocabulary is copied."""

    def __init__(self, logits):
        self._logits = np.asarray(logits, np.float32)
        self.copies = 0

    def __len__(self):
        return len(self._logits)

    def __iter__(self):
        self.copies += 1
        return iter(self._logits.tolist())

    def best_token(self):
        return int(self._logits.argmax()) if np.isfinite(self._logits).all() else None

    def best_tokens(self, k, also):
        if not np.isfinite(self._logits).all():
            return None
        ids = np.argsort(-self._logits, kind="stable")
        ids = ids[~np.isin(ids, also)][:k]
        return ids.tolist(), self._logits[ids].tolist(), self._logits[list(also)].tolist()


OPTIONS = [
    {}, {"temp": 0}, {"temp": 0, "penalty": 1}, {"top_k": 1}, {"penalty": 0.7, "top_k": 5},
    {"presence_penalty": 3.0, "frequency_penalty": -1.5}, {"logit_bias": {3: 4.0, 499: -np.inf, 7: -0.5}, "top_k": 10},
    {"min_p": 0.2, "penalty": 1, "temp": 1.7}, {"top_p": 1, "top_k": 400}, {"temp": 0, "logit_bias": {9: 50.0}},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_the_same_tokens_are_drawn(options):
    rng = random.Random(1)
    on_device, copied = (Sampler(SamplingOptions(**options, seed=11)) for _ in range(2))
    for _ in range(80):
        values = [rng.choice((rng.gauss(0, 3), 2.0, 2.5)) for _ in range(N_VOCAB)]
        logits = DeviceLogits(values)
        token = on_device.sample(logits)
        assert token == copied.sample(np.array(values, np.float32))
        assert logits.copies == 0
        for sampler in (on_device, copied):
            sampler.accept(token)


def test_without_top_k_the_whole_vocabulary_is_taken():
    logits = DeviceLogits(np.linspace(-1, 1, N_VOCAB))
    Sampler(SamplingOptions(top_k=0, seed=1)).sample(logits)
    assert logits.copies == 1


def test_a_stage_of_others_sees_the_whole_vocabulary():
    sampler = Sampler(SamplingOptions(temp=0, penalty=1))
    sampler.vocabulary_stages.append(lambda scores: scores.__setitem__(5, 9.0))
    logits = DeviceLogits(np.linspace(-1, 1, N_VOCAB))
    assert sampler.sample(logits) == 5 and logits.copies == 1
    assert Sampler(SamplingOptions(temp=0)).sample(logits, constraint=lambda scores: scores.__setitem__(6, 9.0)) == 6


@pytest.mark.parametrize("broken, message", [(np.nan, "hold NaN"), (np.inf, r"hold \+infinity")])
@pytest.mark.parametrize("options", [{}, {"temp": 0, "penalty": 1}])
def test_broken_logits_are_named(options, broken, message):
    values = np.zeros(N_VOCAB)
    values[4] = broken
    with pytest.raises(InputError, match=message):
        Sampler(SamplingOptions(**options)).sample(DeviceLogits(values))


def test_a_bias_on_a_token_that_is_not_there_is_named():
    with pytest.raises(InputError, match="logit_bias names token 500; the vocabulary has 500 tokens"):
        Sampler(SamplingOptions(logit_bias={500: 1.0})).sample(DeviceLogits(np.zeros(N_VOCAB)))


@pytest.mark.parametrize("options", OPTIONS)
def test_what_will_be_needed_is_known_before_the_tokens_are(options):
    """The tokens not known yet are those a device draws itself; it counts them beside what it is told."""
    rng = random.Random(2)
    sampler, later = (Sampler(SamplingOptions(**options, seed=3)) for _ in range(2))
    for _ in range(70):
        token = rng.randrange(N_VOCAB)
        sampler.accept(token)
        later.accept(token)
    drawn = [5, 9, 5]
    ahead, behind = sampler.selections(2), sampler.selections(2, drawn)
    assert (len(ahead), len(behind)) == (2, 2)
    for token in drawn:
        if not later.options.greedy:
            later._random.next_double()
        later.accept(token)
    assert behind == later.selections(2)
    penalised = ahead[0].rule.penalises
    assert sum(ahead[0].counts) == 64 * penalised and sum(ahead[1].counts) == 63 * penalised
    assert all(selection.k == (1 if sampler.options.greedy else sampler.options.top_k) for selection in ahead)


def test_all_logits_are_needed_without_top_k_and_for_what_others_do_to_them():
    assert Sampler(SamplingOptions(top_k=0)).selections(3) == []
    sampler = Sampler(SamplingOptions(temp=0))
    sampler.vocabulary_stages.append(lambda scores: None)
    assert sampler.selections(1) == []


def test_looking_at_random_numbers_changes_none():
    looked, plain = MersenneTwister(8), MersenneTwister(8)
    assert looked.peek_doubles(2, 1) == looked.peek_doubles(3)[1:]
    seen = looked.peek_doubles(4)
    assert [looked.next_double() for _ in range(6)] == [plain.next_double() for _ in range(6)]
    assert seen == [number for twister in [MersenneTwister(8)] for number in [twister.next_double() for _ in range(4)]]
