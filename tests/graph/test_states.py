"""Two copies of a recurrent state: what can be gone on from, and that no batch overwrites what is kept."""

import random

import pytest

from bridge.errors import InputError
from bridge.graph.states import StateCopies


class Follower:
    """Copies whose content is the tokens they follow, so that a wrong state shows."""

    def __init__(self):
        self.copies = StateCopies(is_recurrent=True)
        self.content = [["stale"], ["stale"]]

    def run(self, start, tokens):
        read, write = self.copies.begin(start)
        self.content[write] = ([] if start == 0 else list(self.content[read])) + list(tokens)
        self.copies.end(write, start + len(tokens))
        return self.content[write]


def test_a_state_goes_on_from_where_it_is_and_from_nowhere_else():
    state = Follower()
    assert state.run(0, "abc") == list("abc")
    assert state.run(3, "d") == list("abcd")
    assert [state.copies.resume_position(most) for most in (9, 4, 3)] == [4, 4, 0]
    with pytest.raises(InputError, match="cannot start at position 2: its recurrent state"):
        state.run(2, "x")


def test_a_kept_state_survives_what_follows_it():
    state = Follower()
    state.run(0, "ab")
    state.copies.keep(2)
    state.run(2, "cde")
    assert state.run(5, "f") == list("abcdef")
    assert state.copies.resume_position(5) == 2
    assert state.run(2, "xy") == list("abxy")
    assert state.run(2, "z") == list("abz"), "it can be gone on from more than once"


def test_a_kept_state_is_dropped_when_the_tokens_before_it_change():
    state = Follower()
    state.run(0, "abc")
    state.copies.keep(3)
    state.run(0, "xyzw")
    assert state.copies.resume_position(3) == 0


def test_what_failed_half_way_is_not_gone_on_from():
    state = Follower()
    state.run(0, "ab")
    state.copies.keep(2)
    state.run(2, "c")
    state.copies.begin(3)
    assert state.copies.resume_position(9) == 2
    state.copies.restore(7)
    assert (state.copies.holding(7), state.copies.resume_position(9)) == (0, 7)
    with pytest.raises(InputError, match="state of position 2 is not held"):
        state.copies.holding(2)


def test_without_recurrent_state_every_position_will_do():
    copies = StateCopies(is_recurrent=False)
    copies.keep(4)
    assert (copies.begin(5), copies.resume_position(3)) == ((0, 0), 3)


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_calls_gives_the_state_of_the_tokens(seed):
    rng, state, tokens = random.Random(seed), Follower(), []
    for _ in range(300):
        start = state.copies.resume_position(rng.randint(0, len(tokens)))
        tokens[start:] = [rng.randint(0, 9) for _ in range(rng.randint(1, 4))]
        assert state.run(start, tokens[start:]) == tokens
        if rng.random() < 0.3:
            state.copies.keep(state.copies.resume_position(rng.randint(0, len(tokens))))
