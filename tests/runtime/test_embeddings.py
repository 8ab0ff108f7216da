"""Texts as vectors: which batches a session is asked for, and what is made of its answers."""

import asyncio
import math
from array import array

import pytest

from bridge.errors import Cancelled, ContextOverflow, InputError, UnsupportedError
from bridge.graph.states import StateCopies
from bridge.runtime import CancelToken, Model
from bridge.runtime.embeddings import Embeddings, embed_texts, embed_tokens, normalised
from tests.embeddings import embedding_case, load
from tests.runtime.scripted import ByteTokenizer


class ScriptedSession:
    """The vector of an output is (position, tokens of its text in this batch, their sum, or for a mean the mean)."""

    name, adapter, notes = "scripted", {}, []
    state_nbytes = 0

    def __init__(self, pooled_row, n_ctx, n_ubatch, max_outputs):
        self.pooled_row, self.n_ctx, self.n_ubatch, self.max_outputs = pooled_row, n_ctx, n_ubatch, max_outputs
        self.states = StateCopies(False)
        self.calls, self.fail = [], None

    def interrupt(self):
        pass

    async def embed(self, tokens, start, outputs, texts=()):
        assert len(tokens) <= self.n_ubatch and len(outputs) <= self.max_outputs and start + len(tokens) <= self.n_ctx
        self.calls.append((list(tokens), start, list(outputs), list(texts)))
        if self.fail:
            raise self.fail
        rows, first = array("f"), 0
        for length in texts or [len(tokens)]:
            text = tokens[first:first + length]
            for i in [i for i in outputs if first <= i < first + length]:
                if self.pooled_row == "mean":
                    rows.extend([0.0, 0.0, sum(text) / len(text)])
                else:
                    rows.extend([start + i - first, len(text), sum(text)])
            first += length
        return rows

    async def close(self):
        pass


def model_of(pooling="last", whole_texts=False, pooled_row=None, n_ctx=32, n_ubatch=4, max_outputs=3):
    session = ScriptedSession(pooled_row or pooling, n_ctx, n_ubatch, max_outputs)
    facts = Embeddings(3, pooling, pooled_row or pooling, whole_texts)
    return Model(session, ByteTokenizer(), metadata={}, architecture="scripted", n_vocab=16, n_ctx_train=0, nbytes=0,
                 has_logits=False, embeddings=facts), session


def vectors(model, texts, **options):
    return [list(vector) for vector in asyncio.run(embed_texts(model, texts, **options))]


def test_whole_texts_share_batches_up_to_their_tokens_and_outputs():
    model, session = model_of("last", whole_texts=True, n_ubatch=8)
    texts = [[1, 2, 3], [4], [5, 6], [7], [1] * 8, [2]]
    assert vectors(model, texts) == [[len(t) - 1, len(t), sum(t)] for t in texts]
    assert [(outputs, lengths) for _, _, outputs, lengths in session.calls] == [
        ([2, 3, 5], [3, 1, 2]), ([0], [1]), ([7], [8]), ([0], [1])]
    assert all(start == 0 for _, start, _, _ in session.calls)


def test_the_first_token_stands_for_the_text_where_the_file_says_so():
    model, session = model_of("rank", whole_texts=True, pooled_row="cls", n_ubatch=8)
    assert vectors(model, [[1, 2, 3], [4, 5]]) == [[0, 3, 6], [0, 2, 9]]
    assert session.calls[0][2] == [0, 3]


def test_a_decoder_evaluates_batch_after_batch_and_gives_the_last_row():
    model, session = model_of("last")
    assert vectors(model, [[1, 2, 3, 4, 5, 6]]) == [[5, 2, 11]]
    assert [(start, outputs) for _, start, outputs, _ in session.calls] == [(0, []), (4, [1])]
    assert model.n_past == 0


def test_a_mean_over_batches_is_that_of_all_tokens():
    model, session = model_of("mean")
    assert vectors(model, [[1, 2, 3, 4, 9, 11]]) == [[0, 0, 5]]
    assert [outputs for _, _, outputs, _ in session.calls] == [[3], [1]]


def test_the_first_row_of_a_decoder_needs_one_batch():
    model, session = model_of("cls")
    assert vectors(model, [[1, 2, 3, 4, 5]]) == [[0, 4, 10]]
    assert len(session.calls) == 1


def test_every_token_of_a_text():
    model, session = model_of("none")
    rows = asyncio.run(embed_tokens(model, [1, 2, 3, 4, 5]))
    assert [list(row)[0] for row in rows] == [0, 1, 2, 3, 4]
    assert [outputs for _, _, outputs, _ in session.calls] == [[0, 1, 2], [0, 1]]
    with pytest.raises(UnsupportedError, match="one vector for a text .pooling last."):
        asyncio.run(embed_tokens(model_of("last")[0], [1]))


@pytest.mark.parametrize("whole_texts, most", [(True, 4), (False, 32)])
def test_a_text_that_is_too_long_is_refused_with_both_numbers_before_any_is_evaluated(whole_texts, most):
    model, session = model_of("last", whole_texts)
    with pytest.raises(ContextOverflow, match=f"the text has {most + 1} tokens, which exceeds the {most} that"):
        vectors(model, [[1], [1] * (most + 1)])
    assert not session.calls


def test_what_cannot_be_embedded_is_said():
    with pytest.raises(InputError, match="the text is empty"):
        vectors(model_of()[0], [[]])
    with pytest.raises(InputError, match="token 1 is 16; it must be an integer from 0 to 15"):
        vectors(model_of()[0], [[1, 16]])
    model, _ = model_of()
    model.embeddings = None
    with pytest.raises(UnsupportedError, match="the architecture scripted gives no embeddings"):
        vectors(model, [[1]])


def test_a_model_without_logits_predicts_nothing():
    model, _ = model_of()
    with pytest.raises(UnsupportedError, match="gives vectors for texts; it cannot predict tokens"):
        asyncio.run(model.evaluate([1]))


def test_cancellation_is_looked_at_between_batches_and_failures_leave_an_empty_context():
    model, session = model_of("last")
    cancel = CancelToken()
    cancel.cancel()
    with pytest.raises(Cancelled):
        vectors(model, [[1]], cancel=cancel)
    assert model.n_past == 0

    class Later(CancelToken):
        def check(self):
            if session.calls:
                raise Cancelled("cancelled between two batches")

    with pytest.raises(Cancelled):
        vectors(model, [[1, 2, 3, 4, 5]], cancel=Later())
    assert (len(session.calls), model.n_past) == (1, 0)
    session.fail = RuntimeError("lost")
    with pytest.raises(RuntimeError):
        vectors(model, [[1, 2]])
    session.fail = None
    assert vectors(model, [[1, 2]]) == [[1, 2, 3]]


@pytest.mark.parametrize("name, trained", [("bert-cls-f16", 128), ("nomic-bert-f16", 256)])
def test_an_encoder_takes_no_longer_texts_than_it_was_trained_for(name, trained):
    async def found():
        model = await load(embedding_case(name), backend="reference", n_ctx=4096)
        return model.n_ctx, model.n_ubatch, model.notes

    assert asyncio.run(found()) == (trained, trained, [f"n_ctx_capped:{trained}"])


def test_a_micro_batch_that_is_asked_for_bounds_the_texts():
    async def found():
        model = await load(embedding_case("nomic-bert-f16"), backend="reference", n_ubatch=32)
        return await embed_texts(model, [[5] * 33])

    with pytest.raises(ContextOverflow, match="33 tokens, which exceeds the 32"):
        asyncio.run(found())


def test_a_vector_is_brought_to_length_1_without_what_is_no_number():
    assert list(normalised([3.0, math.nan, -4.0, math.inf])) == [pytest.approx(0.6), 0.0, pytest.approx(-0.8), 0.0]
    assert list(normalised([0.0, 0.0])) == [0.0, 0.0]
    assert sum(x * x for x in normalised([1e30, 1e30])) == pytest.approx(1.0)
