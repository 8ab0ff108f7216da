"""Scores of the next token against a softmax worked in a second way."""

import asyncio
import math
from array import array

import pytest

from bridge.errors import Cancelled, ContextOverflow, InputError
from bridge.runtime import CancelToken, Model
from bridge.runtime.logprobs import log_sum_exp
from bridge.runtime.scoring import score_next_token
from tests.runtime.scripted import ByteTokenizer, ScriptedSession


def _model(row=None, **session):
    opened = ScriptedSession(n_vocab=8, **session)
    if row is not None:
        evaluate = opened.evaluate

        async def with_row(tokens, start, outputs, selection=None):
            return array("f", row) if await evaluate(tokens, start, outputs) else None

        opened.evaluate = with_row
    return Model(opened, ByteTokenizer(), metadata={}, architecture="scripted", n_vocab=8, n_ctx_train=32, nbytes=0), opened


def score(model, prompt, *args, **kwargs):
    return asyncio.run(score_next_token(model, prompt, *args, **kwargs))


ROW = [0.5, -1.0, 2.0, 2.0, -3.5, 0.0, 1.0, -math.inf]


def test_candidates_keep_their_order_and_top_is_by_probability_then_id():
    model, _ = _model(ROW)
    scores = score(model, [2, 3], [5, 7, 0], 4)
    total = sum(math.exp(x) for x in ROW)
    assert [s.token for s in scores.candidates] == [5, 7, 0]
    assert [s.logprob for s in scores.candidates] == pytest.approx([math.log(math.exp(ROW[t]) / total) if t != 7
                                                                    else -math.inf for t in (5, 7, 0)])
    assert [s.token for s in scores.top] == [2, 3, 6, 0]
    assert (scores.top[0].text, scores.prompt_tokens) == (b"\x02", 2)
    everything = score(model, [2, 3], [], 8)
    assert math.fsum(math.exp(s.logprob) for s in everything.top) == pytest.approx(1)
    assert everything.top[-1].token == 7


def test_a_logit_that_is_no_number_leaves_its_probability_undefined():
    model, _ = _model([1.0, math.nan, math.inf, 0.0, 0.0, 0.0, 0.0, 0.0])
    assert all(s.logprob == -math.inf for s in score(model, [2], [0, 1, 2]).candidates)
    assert math.isnan(log_sum_exp([math.inf, 1.0]))


def test_large_logits_do_not_overflow():
    assert log_sum_exp([1000.0, 1000.0]) == pytest.approx(1000 + math.log(2))


def test_the_prefix_is_shared_with_other_calls_unless_it_is_switched_off():
    model, session = _model()
    score(model, [2, 3, 4], top_k=1)
    session.calls.clear()
    score(model, [2, 3, 5], top_k=1)
    assert session.calls == [([5], 2, [0])]
    session.calls.clear()
    score(model, [2, 3, 5], top_k=1, reuse_prefix=False)
    assert session.calls == [([2, 3, 5], 0, [2])]


@pytest.mark.parametrize(("candidates", "top_k", "words"), [
    ([], 0, "pass candidates, a positive topK, or both"),
    ([1, 8], 0, r"candidates\[1\] is 8, which is outside the vocabulary of 8 tokens"),
    ([-1], 0, r"candidates\[0\] is -1, which is outside the vocabulary"),
    ([], 9, "topK is 9, which is outside the vocabulary"),
    ([1], -1, "topK is -1, which is outside the vocabulary"),
])
def test_what_is_outside_the_vocabulary_is_refused_before_anything_runs(candidates, top_k, words):
    model, session = _model()
    with pytest.raises(InputError, match=words):
        score(model, [2], candidates, top_k)
    assert session.calls == []


def test_cancelled_and_too_long_prompts():
    model, _ = _model()
    cancel = CancelToken()
    cancel.cancel()
    with pytest.raises(Cancelled):
        score(model, [2, 3], top_k=1, cancel=cancel)
    with pytest.raises(ContextOverflow, match="exceeds the context size of 32"):
        score(model, [2] * 33, top_k=1)
