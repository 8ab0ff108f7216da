"""Logits that a device looks through itself give the same tokens as those that are copied out."""

import random

import numpy as np
import pytest

from bridge.errors import InputError
from bridge.sampling import Sampler, SamplingOptions

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
