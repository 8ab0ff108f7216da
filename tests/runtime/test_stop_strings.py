"""Stop strings against the plain definition: the text up to the first place where one of them stands."""

import asyncio
import random

import pytest

from bridge.errors import InputError
from bridge.runtime import GenerateOptions
from bridge.runtime.stop_strings import StopStrings
from tests.runtime.test_model import GREEDY, _model


def through(stops, pieces):
    filter, out = StopStrings(stops), []
    for piece in pieces:
        text, stopped = filter.push(piece)
        out.append(text)
        if stopped:
            return "".join(out), True
    return "".join(out) + filter.flush(), False


def test_any_cut_of_any_text_gives_what_stands_before_the_first_stop_string():
    draw = random.Random(5)
    for _ in range(3000):
        text = "".join(draw.choices("ab\n", k=draw.randint(0, 14)))
        stops = ["".join(draw.choices("ab\n", k=draw.randint(1, 4))) for _ in range(draw.randint(1, 3))]
        cuts = sorted(draw.choices(range(len(text) + 1), k=4))
        pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)])]
        got, stopped = through(stops, pieces)
        # A piece ends the text at the first stop string that is complete by then, wherever another one begins earlier.
        for end in range(len(pieces) + 1):
            seen = "".join(pieces[:end])
            at = [seen.find(stop) for stop in stops if stop in seen]
            if at:
                assert (got, stopped) == (seen[:min(at)], True)
                break
        else:
            assert (got, stopped) == (text, False)


def test_only_what_may_begin_a_stop_string_is_held_back():
    filter = StopStrings(["</s>", "\n\n"])
    assert filter.push("one\n") == ("one", False)
    assert filter.held == "\n"
    assert filter.push("two</") == ("\ntwo", False)
    assert filter.push("b>") == ("</b>", False)
    assert filter.push("</s>tail") == ("", True)


@pytest.mark.parametrize("stops", [[""], [3]])
def test_empty_and_foreign_stops_are_refused(stops):
    with pytest.raises(InputError, match="must be a text that is not empty"):
        StopStrings(stops)


def generated(stop, n_predict=8):
    model, _ = _model(n_vocab=256, n_ctx=64)

    async def collect():
        options = GenerateOptions(n_predict=n_predict, sampling=GREEDY, stop=stop)
        return [piece async for piece in model.generate([33], options)]

    return model, asyncio.run(collect())


def test_a_generation_ends_at_a_stop_string():
    # The session doubles: "!" (33), "B" (66), then 132, which is no text by itself.
    model, pieces = generated(("B",))
    assert "".join(piece.text for piece in pieces) == "!"
    assert (model.last_usage.finish_reason, model.last_usage.completion_tokens) == ("stop", 2)
    model, pieces = generated(("!x",), n_predict=1)
    assert [(piece.text, piece.pending) for piece in pieces] == [("", "!"), ("!", "")], "held back, then given at the end"
    assert model.last_usage.finish_reason == "length"
