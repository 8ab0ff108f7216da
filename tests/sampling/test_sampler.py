"""What recorded values cannot show: both candidate classes agree; state, seeds, ties, bad input; no numpy needed."""

import math
import subprocess
import sys
from array import array

import numpy as np
import pytest

from bridge.errors import InputError
from bridge.sampling import Sampler, SamplingOptions, candidates
from bridge.sampling.candidate_array import CandidateArray
from bridge.sampling.candidate_list import CandidateList
from bridge.sampling.mersenne import MersenneTwister

NAN, INF = math.nan, math.inf


def test_mersenne_twister_is_the_one_of_the_cpp_standard():
    twister = MersenneTwister(5489)
    outputs = [twister.next_uint32() for _ in range(10000)]
    assert outputs[0] == 3499211612
    assert outputs[-1] == 4123659995  # ISO C++ [rand.predef]: the 10000th invocation of a default-constructed mt19937


def logits_with_ties(n, seed):
    rng = np.random.default_rng(seed)
    return array("f", np.round(rng.normal(0, 3, n), 1).astype(np.float32).tobytes())


@pytest.mark.parametrize("n", [1, 63, 64, 65, 1000, 5000])
@pytest.mark.parametrize(
    "options",
    [
        {"top_k": 1},
        {"top_k": 40},
        {"top_k": 64},
        {"top_k": 700},
        {"top_p": 0.3},
        {"top_p": 0.99},
        {"min_p": 0.05},
        {"min_p": 1.0},
        {"temp": 0.3},
        {"temp": 1e-38, "top_p": 0.5},
        {"top_k": 100, "top_p": 0.9, "min_p": 0.02, "temp": 1.3},
        {"top_p": 0.9, "min_p": 0.02, "temp": 0.7},
    ],
    ids=str,
)
def test_lists_and_arrays_agree(n, options):
    scores = logits_with_ties(n, seed=n)
    sampler = Sampler(SamplingOptions(**{"temp": 1, "top_k": 0, "top_p": 1, "seed": 7, **options}))
    drawn = {}
    for kind in (CandidateList, CandidateArray):
        sampler.reset()
        sampler._candidates = kind
        found = sampler.candidates(scores).best_first()
        drawn[kind] = (*found.to_lists(), [sampler.sample(scores) for _ in range(20)])
    ids, probabilities, draws = zip(*drawn.values(), strict=True)
    assert ids[0] == ids[1] and draws[0] == draws[1]
    assert probabilities[0] == pytest.approx(probabilities[1], rel=1e-12)


def test_the_order_is_by_logit_then_id():
    scores = logits_with_ties(3000, seed=1)
    by_hand = sorted(range(3000), key=lambda i: (-scores[i], i))
    for k in (1, 5, 23, 24, 46, 47, 500, 3000, 9999):
        for kind in (CandidateList, CandidateArray):
            assert kind.of_vocabulary(scores).top_k(k).to_lists()[0] == by_hand[:k], (k, kind)


@pytest.mark.parametrize("options", [{"temp": 0}, {"temp": -1}, {"top_k": 1}])
def test_greedy_ties_go_to_the_lowest_id(options):
    for kind in (CandidateList, CandidateArray):
        sampler = Sampler(SamplingOptions(**options))
        sampler._candidates = kind
        assert sampler.sample([1.0, 3.0, 3.0, 2.0]) == 1


def test_draws_follow_the_probabilities():
    sampler = Sampler(SamplingOptions(temp=1, top_k=0, top_p=1, seed=3))
    logits = [math.log(p) for p in (0.6, 0.3, 0.1)]
    counts = np.bincount([sampler.sample(logits) for _ in range(3000)]) / 3000
    assert counts == pytest.approx([0.6, 0.3, 0.1], abs=0.03)


def test_penalties_see_the_last_64_accepted_tokens_only():
    sampler = Sampler(SamplingOptions(temp=0, penalty=2.0))
    logits = [4.0, 3.0, 1.0]
    sampler.accept(0)
    assert sampler.sample(logits) == 1  # 4 / 2 < 3
    for _ in range(63):
        sampler.accept(2)
    assert sampler.sample(logits) == 1
    sampler.accept(2)  # the 65th: token 0 leaves the window
    assert sampler.sample(logits) == 0
    sampler.accept(0)
    sampler.reset()
    assert sampler.sample(logits) == 0


def test_presence_counts_once_and_frequency_per_occurrence():
    once = Sampler(SamplingOptions(temp=0, penalty=1, presence_penalty=0.5))
    each = Sampler(SamplingOptions(temp=0, penalty=1, frequency_penalty=0.5))
    for sampler in (once, each):
        sampler.accept(0)
        sampler.accept(0)
    assert once.sample([2.0, 1.4]) == 0
    assert each.sample([2.0, 1.4]) == 1


def test_the_logits_given_are_not_changed():
    logits = np.array([1.0, 2.0, 3.0], np.float32)
    candidates(logits, [2, 2], penalty=1.5, presence_penalty=1, logit_bias={0: 5})
    assert logits.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    "logits",
    [
        [0.5, 2.0, 1.0],
        (0.5, 2.0, 1.0),
        array("f", [0.5, 2.0, 1.0]),
        array("d", [0.5, 2.0, 1.0]),
        memoryview(array("f", [0.5, 2.0, 1.0])),
        np.array([0.5, 2.0, 1.0], np.float16),
        np.array([0.5, 9.0, 2.0, 9.0, 1.0, 9.0], np.float32)[::2],
    ],
)
def test_any_float_vector_will_do(logits):
    assert candidates(logits, top_k=2) == candidates([0.5, 2.0, 1.0], top_k=2)
    assert candidates(logits)[0] == [1, 2, 0]


def test_the_same_seed_gives_the_same_tokens_and_seeds_wrap_at_32_bits():
    def tokens(seed):
        sampler = Sampler(SamplingOptions(top_k=0, top_p=1, seed=seed))
        first = [sampler.sample([0.0] * 100) for _ in range(8)]
        sampler.reset()
        assert [sampler.sample([0.0] * 100) for _ in range(8)] == first
        return first

    assert tokens(5) == tokens(5 + 2**32) == tokens(5 - 2**32)
    assert tokens(5) != tokens(6)


def test_without_a_seed_one_is_drawn_and_told():
    first, second = Sampler(SamplingOptions()), Sampler(SamplingOptions())
    assert first.seed != second.seed
    again = Sampler(SamplingOptions(top_k=0, seed=first.seed))
    free = Sampler(SamplingOptions(top_k=0))
    free._random = MersenneTwister(first.seed)
    assert [free.sample([0.0] * 50) for _ in range(5)] == [again.sample([0.0] * 50) for _ in range(5)]


def test_picking_among_device_candidates_equals_sampling_from_everything():
    scores = logits_with_ties(2000, seed=4)
    options = SamplingOptions(seed=11)
    ids = sorted(range(2000), key=lambda i: (-scores[i], i))[:40]
    whole, picked = Sampler(options), Sampler(options)
    for _ in range(20):
        assert picked.pick(ids, [scores[i] for i in ids]) == whole.sample(scores)
    assert Sampler(SamplingOptions(temp=0)).pick([17, 3], [2.0, 1.0]) == 17


def test_a_constraint_comes_before_everything_else():
    def only_even(scores):
        for token in range(1, len(scores), 2):
            scores[token] = -INF

    for options in (
        SamplingOptions(temp=0),
        SamplingOptions(top_k=2, seed=1),
        SamplingOptions(top_k=0, top_p=1, seed=1),
    ):
        sampler = Sampler(options)
        assert {sampler.sample([1.0, 9.0, 2.0, 8.0], only_even) for _ in range(30)} <= {0, 2}
    with pytest.raises(InputError, match="every token has been ruled out"):
        Sampler().sample([1.0], lambda scores: scores.__setitem__(0, -INF))


def test_a_token_biased_to_minus_infinity_is_never_drawn():
    ids, probabilities = candidates([5.0, 1.0, 1.0], logit_bias={0: -INF})
    assert dict(zip(ids, probabilities, strict=True)) == {1: 0.5, 2: 0.5, 0: 0.0}


@pytest.mark.parametrize("kind", [CandidateList, CandidateArray])
@pytest.mark.parametrize("options", [{"temp": 0}, {"top_k": 2}, {"top_k": 0}])
@pytest.mark.parametrize(
    ("logits", "message"),
    [
        ([], "no logits"),
        ([NAN] * 3, "NaN"),
        ([NAN, 1.0, 2.0], "NaN"),
        ([1.0, NAN, 2.0], "NaN"),
        ([1.0, 2.0, INF], r"\+infinity"),
        ([1.0, 1e39], r"\+infinity"),
        ([-INF, -INF], "ruled out"),
    ],
)
def test_unusable_logits(kind, options, logits, message):
    sampler = Sampler(SamplingOptions(**options))
    sampler._candidates = kind
    with pytest.raises(InputError, match=message):
        sampler.sample(logits)


@pytest.mark.parametrize(
    "logits", [None, 3, "abc", b"abcd", np.zeros((2, 2), np.float32), np.float32(1), ["a"], [None]]
)
def test_what_is_no_vector_of_floats_is_refused(logits):
    with pytest.raises(InputError, match="logits must be"):
        Sampler().sample(logits)


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("temp", ["0.8", None, NAN, INF, 1e39, True]),
        ("top_k", [1.5, "4", None, False]),
        ("top_p", [NAN, "x"]),
        ("min_p", [-0.01, 1.01, NAN, INF, "0.1"]),
        ("penalty", [NAN, -INF]),
        ("presence_penalty", [NAN, -INF, "1", 1e39]),
        ("logit_bias", [3, [1, 2], {-1: 1.0}, {1.5: 1.0}, {1: NAN}, {1: INF}, {1: "x"}]),
        ("seed", [1.5, "x", NAN]),
    ],
)
def test_bad_options_are_refused_by_name(option, values):
    for value in values:
        with pytest.raises(InputError, match=option):
            SamplingOptions(**{option: value})


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ({"temp": -1}, {"temp": 0.0}),
        ({"top_k": -5}, {"top_k": 0}),
        ({"top_p": 0}, {"top_p": 1.0}),
        ({"top_p": 1.5}, {"top_p": 1.0}),
        ({"penalty": 0}, {"penalty": 1.0}),
        ({"penalty": -2}, {"penalty": 1.0}),
        ({"seed": -1}, {"seed": 2**32 - 1}),
        ({"min_p": 1}, {"min_p": 1.0}),
        ({"presence_penalty": 1e6}, {"presence_penalty": 1e6}),
    ],
)
def test_clamps(given, taken):
    options = SamplingOptions(**given)
    assert {name: getattr(options, name) for name in taken} == taken


def test_candidates_reads_top_p_0_as_llama_cpp_does():
    assert candidates([1.0, 3.0, 2.0], top_p=0) == ([1], [1.0])


def test_ids_beyond_the_vocabulary_are_refused():
    with pytest.raises(InputError, match="names token 3; the vocabulary has 3 tokens"):
        candidates([1.0, 2.0, 3.0], logit_bias={3: 1.0})
    with pytest.raises(InputError, match="token 9 was accepted; the vocabulary has 3 tokens"):
        candidates([1.0, 2.0, 3.0], [9], penalty=1.1)
    with pytest.raises(InputError, match="token id must be an integer"):
        Sampler().accept("x")
    with pytest.raises(InputError, match="one logit per id"):
        Sampler().pick([1, 2], [0.5])
    with pytest.raises(InputError, match="sorted by logit"):
        Sampler().pick([1, 2], [0.5, 0.6])
    with pytest.raises(InputError, match="NaN"):
        Sampler().pick([1, 2], [0.5, NAN])


def test_default_sampling_works_where_numpy_cannot_be_imported():
    program = (
        "import sys; sys.modules['numpy'] = None\n"
        "from bridge.sampling import Sampler, SamplingOptions\n"
        "from array import array\n"
        "logits = array('f', [0.01 * (i % 500) for i in range(5000)])\n"
        "for options in ({}, {'temp': 0}, {'top_k': 0}, {'top_k': 0, 'top_p': 1, 'min_p': 0.9}):\n"
        "    print(Sampler(SamplingOptions(seed=1, **options)).sample(logits))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    logits = array("f", [0.01 * (i % 500) for i in range(5000)])
    options = ({}, {"temp": 0}, {"top_k": 0}, {"top_k": 0, "top_p": 1, "min_p": 0.9})
    assert done.stdout.split() == [str(Sampler(SamplingOptions(seed=1, **o)).sample(logits)) for o in options]


def test_importing_the_package_imports_no_numpy():
    program = "import sys, bridge.sampling; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
