"""The context: what is evaluated, what is kept, when it stops, and that a failure leaves nothing behind."""

import asyncio

import pytest

from bridge.errors import Cancelled, ContextOverflow, DeviceError, InputError
from bridge.runtime import CancelToken, GenerateOptions, Model
from bridge.sampling import SamplingOptions
from tests.runtime.scripted import ByteTokenizer, ScriptedSession

GREEDY = SamplingOptions(temp=0.0, penalty=1.0)


def _model(**session):
    opened = ScriptedSession(**session)
    return Model(opened, ByteTokenizer(), metadata={}, architecture="scripted", n_vocab=opened.n_vocab,
                 n_ctx_train=opened.n_ctx, nbytes=0), opened


def _generate(model, prompt, n_predict=4, cancel=None, **options):
    async def collect():
        made = GenerateOptions(n_predict=n_predict, sampling=GREEDY, **options)
        return [piece async for piece in model.generate(prompt, made, cancel)]

    return asyncio.run(collect())


def test_prompt_runs_in_micro_batches_and_only_the_last_token_has_logits():
    model, session = _model()
    _generate(model, [2, 3, 4, 2, 3, 4], n_predict=1)
    assert session.calls == [([2, 3, 4, 2], 0, []), ([3, 4], 4, [1])]


def test_greedy_follows_the_session():
    model, _ = _model()
    # 2 + 3 = 5, then 10, then 20 mod 16 = 4, then 8
    assert [p.token for p in _generate(model, [2, 3])] == [5, 10, 4, 8]
    usage = model.last_usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.finish_reason) == (2, 4, "length")
    assert usage.duration_ms >= usage.prompt_ms >= 0


def test_no_token_is_evaluated_after_the_last_one_wanted():
    model, session = _model()
    _generate(model, [2, 3], n_predict=2)
    assert session.calls[1:] == [([5], 2, [0])]


def test_end_token_stops_and_is_not_counted():
    model, _ = _model()
    assert _generate(model, [9, 8]) == []  # 17 mod 16 = 1, the end token
    assert (model.last_usage.finish_reason, model.last_usage.completion_tokens) == ("stop", 0)
    assert model.last_usage.time_to_first_token_ms is None


def test_end_token_can_be_ignored():
    model, _ = _model()
    assert [p.token for p in _generate(model, [9, 8], n_predict=2, ignore_eos=True)] == [1, 2]


def test_context_limit_ends_with_length_and_a_note():
    model, _ = _model(n_ctx=4)
    assert [p.token for p in _generate(model, [2, 3], n_predict=9)] == [5, 10, 4]
    assert model.last_usage.finish_reason == "length"
    assert "generation_stopped_context_limit" in model.notes


def test_prompt_of_exactly_the_context_still_gives_one_token():
    model, _ = _model(n_ctx=4)
    assert [p.token for p in _generate(model, [2, 2, 2, 4])] == [10]


def test_common_prefix_with_the_previous_prompt_is_kept():
    model, session = _model()
    _generate(model, [2, 3, 4, 5])
    session.calls.clear()
    _generate(model, [2, 3, 9], n_predict=1)
    assert session.calls == [([9], 2, [0])]
    assert model.last_usage.cached_prompt_tokens == 2


def test_same_prompt_evaluates_its_last_token_again():
    model, session = _model()
    first = _generate(model, [2, 3, 4])
    session.calls.clear()
    assert _generate(model, [2, 3, 4]) == first
    assert session.calls[0] == ([4], 2, [0])


def test_generated_tokens_do_not_count_as_prompt_prefix():
    model, session = _model()
    _generate(model, [2, 3])  # writes 5, 10, 4 behind the prompt
    session.calls.clear()
    _generate(model, [2, 3, 5, 10], n_predict=1)
    assert session.calls == [([5, 10], 2, [1])]


def test_cancel_between_tokens_ends_normally_and_the_next_call_works():
    model, _ = _model()
    cancel = CancelToken()

    async def stop_after_two():
        tokens = []
        async for piece in model.generate([2, 3], GenerateOptions(n_predict=9, sampling=GREEDY), cancel):
            tokens.append(piece.token)
            if len(tokens) == 2:
                cancel.cancel()
        return tokens

    assert asyncio.run(stop_after_two()) == [5, 10]
    assert model.last_usage.finish_reason == "cancelled"
    assert [p.token for p in _generate(model, [2, 3], n_predict=3)] == [5, 10, 4]


def test_cancel_during_the_prompt_stops_before_the_next_micro_batch():
    model, session = _model()
    cancel = CancelToken()
    cancel.cancel()
    assert _generate(model, [2] * 8, cancel=cancel) == []
    assert session.calls == [] and model.last_usage.finish_reason == "cancelled"
    assert _generate(model, [2, 3], n_predict=1)[0].token == 5


def test_failed_evaluation_forgets_the_cache():
    model, session = _model()
    _generate(model, [2, 3, 4])
    session.fail = DeviceError("the device was lost")
    with pytest.raises(DeviceError):
        _generate(model, [2, 3, 5])
    session.fail = None
    session.calls.clear()
    _generate(model, [2, 3, 5], n_predict=1)
    assert session.calls[0] == ([2, 3, 5], 0, [2])


def test_a_character_split_over_tokens_comes_whole():
    model, session = _model(n_vocab=256, n_ctx=64)
    # The session sums: 0xC3 alone, then its double modulo 256 is 0x86, which completes "Æ" (C3 86).
    pieces = _generate(model, [0xC3], n_predict=2)
    assert [p.token for p in pieces] == [0xC3, 0x86]
    assert [p.text for p in pieces] == ["", "Æ"]
    assert [p.pending for p in pieces] == ["\ufffd", ""]


def test_unfinished_character_is_flushed_at_the_end():
    model, _ = _model(n_vocab=256, n_ctx=64)
    pieces = _generate(model, [0xC3], n_predict=1)
    assert "".join(p.text for p in pieces) == "\ufffd"
    assert model.last_usage.completion_tokens == 1


def test_evaluate_returns_every_row_in_pieces_of_max_outputs():
    model, session = _model()
    rows = asyncio.run(model.evaluate([2, 3, 4, 5, 6], outputs="all"))
    assert rows.shape == (5, 16) and rows.argmax(axis=1).tolist() == [2, 5, 9, 14, 4]
    assert [len(call[0]) for call in session.calls] == [2, 2, 1]


@pytest.mark.parametrize("prompt, error, words", [
    ([], InputError, "empty"),
    ([2] * 33, ContextOverflow, "33 tokens.*32"),
    ([2, 16], InputError, "token 1 is 16.*0 to 15"),
    ([-1], InputError, "token 0 is -1"),
    ([2.0], InputError, "2.0"),
])
def test_bad_prompts_are_refused_in_one_sentence(prompt, error, words):
    model, session = _model()
    with pytest.raises(error, match=words):
        _generate(model, prompt)
    assert session.calls == []
    assert _generate(model, [2, 3], n_predict=1)[0].token == 5


def test_evaluate_can_be_cancelled():
    model, _ = _model()
    cancel = CancelToken()
    cancel.cancel()
    with pytest.raises(Cancelled):
        asyncio.run(model.evaluate([2, 3], cancel=cancel))


def test_close_is_final_and_idempotent():
    model, session = _model()

    async def close_twice():
        await model.close()
        await model.close()
        with pytest.raises(DeviceError, match="closed"):
            await model.evaluate([2])

    asyncio.run(close_twice())
    assert session.closed == 1


def test_every_micro_batch_of_a_prompt_is_told():
    (model, _), told = _model(), []

    async def collect():
        options = GenerateOptions(n_predict=1, sampling=GREEDY)
        async for _ in model.generate([2, 3, 4, 5, 6, 7], options, on_prefill=lambda *counts: told.append(counts)):
            pass

    asyncio.run(collect())
    assert told == [(4, 6), (6, 6)]
