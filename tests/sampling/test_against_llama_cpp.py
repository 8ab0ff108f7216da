"""Every sampler of the chain, and the chain with its draws, against what llama.cpp computed (tests/data/sampling)."""

import json
from array import array
from pathlib import Path

import pytest

from bridge.sampling import Sampler, SamplingOptions, candidates
from bridge.sampling.candidate_array import CandidateArray
from bridge.sampling.candidate_list import CandidateList
from bridge.sampling.options import number
from bridge.sampling.vocabulary_stages import Penalties, logit_bias

DATA = json.loads((Path(__file__).parents[1] / "data/sampling/samplers.json").read_text())
VECTORS = {name: array("f", values) for name, values in DATA["logits_vectors"].items()}
KINDS = pytest.mark.parametrize("kind", [CandidateList, CandidateArray])


def singles(*samplers):
    """One sampler at a time; the ones with a parameter that switches them off are the chain's business."""
    return [
        pytest.param(case, id=f"{case['logits']}-{case['sampler']}-{'-'.join(map(str, case['params'].values()))}")
        for case in DATA["single"]
        if case["sampler"] in samplers
    ]


def chains(*param_sets):
    return [
        pytest.param(case, id=f"{case['logits']}-{case['param_set']}")
        for case in DATA["chains"]
        if case["param_set"] in param_sets
    ]


def eight_digits(values):  # what the data file keeps of a float32
    return [f"{value:.8g}" for value in values]


def assert_same_set(ids, probabilities, out):
    assert len(ids) == out["n"]
    if "ids_sorted" in out:
        assert out["ids_sorted"] == "all" or sorted(ids) == out["ids_sorted"]
        return
    assert ids[: len(out["ids"])] == out["ids"]
    assert probabilities[: len(out["ids"])] == pytest.approx(out["p"], rel=1e-5)


@KINDS
@pytest.mark.parametrize("case", singles("top_k", "top_p", "min_p"))
def test_truncation(case, kind):
    (amount, *_), name = case["params"].values(), case["sampler"]
    found = kind.of_vocabulary(VECTORS[case["logits"]])
    if not {"top_k": amount <= 0, "top_p": amount >= 1, "min_p": amount <= 0}[name]:
        found = getattr(found, name)(amount if name == "top_k" else number(name, amount))
    assert_same_set(*found.to_lists(), case["out"])


@KINDS
@pytest.mark.parametrize("case", [case for case in singles("temp") if case.values[0]["params"]["t"] > 0])
def test_temperature(case, kind):
    found = kind.of_vocabulary(VECTORS[case["logits"]]).divide(number("temp", case["params"]["t"]))
    assert_same_set(*found.to_lists(), case["out"])
    assert eight_digits(map(float, found.logits)) == eight_digits(case["out"]["logits"])


@pytest.mark.parametrize("case", singles("greedy"))
def test_greedy(case):
    assert Sampler(SamplingOptions(temp=0)).sample(VECTORS[case["logits"]]) == case["selected_id"]


@pytest.mark.parametrize("case", singles("penalties", "logit_bias"))
def test_logits_after_a_vocabulary_stage(case):
    scores, params = VECTORS[case["logits"]][:], case["params"]
    if case["sampler"] == "logit_bias":
        logit_bias(dict(params["bias"]))(scores)
    else:
        repeat, frequency, presence = (number(name, params[name]) for name in ("repeat", "freq", "present"))
        penalties = Penalties(repeat, presence, frequency, params["penalty_last_n"])
        for token in case["accepted_tokens"]:
            penalties.accept(token)
        penalties.apply(scores)
    assert eight_digits(scores[i] for i in case["out"]["ids"]) == eight_digits(case["out"]["logits"])


def chain_options(case):
    stages = {stage["sampler"]: stage["params"] for stage in case["stages"]}
    return {
        "temp": stages["temp"]["t"],
        "top_k": stages["top_k"]["k"],
        "top_p": stages["top_p"]["p"],
        "min_p": stages["min_p"]["p"],
        "penalty": stages["penalties"]["repeat"],
        "presence_penalty": stages["penalties"]["present"],
    }, stages["penalties"]["freq"]


@pytest.mark.parametrize("case", chains(0, 2, 3))  # set 1 has a frequency penalty, which candidates() lacks
def test_candidates_of_the_chain(case):
    options, _ = chain_options(case)
    ids, probabilities = candidates(VECTORS[case["logits"]], case["accepted_tokens"], **options)
    out = case["stages"][-1]["out"]
    if options["temp"] == 0:  # llama.cpp keeps the others at probability 0
        assert (ids, probabilities) == ([case["dist_draws"]["0"][0]], [1.0])
    else:
        assert_same_set(ids, probabilities, out)


@KINDS
@pytest.mark.parametrize("case", chains(0, 1, 2, 3))
def test_draws_of_the_chain(case, kind):
    options, frequency = chain_options(case)
    for seed, draws in case["dist_draws"].items():
        sampler = Sampler(SamplingOptions(**options, frequency_penalty=frequency, seed=int(seed)))
        sampler._candidates = kind
        for token in case["accepted_tokens"]:
            sampler.accept(token)
        assert [sampler.sample(VECTORS[case["logits"]]) for _ in draws] == draws
