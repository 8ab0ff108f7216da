"""Commands that run a model or write one: logits, generate, bench, synth."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from bridge.gguf import open_gguf
from tests.cli.commands import output


def test_logits_are_written_as_float32(bridge, model, tmp_path):
    out = tmp_path / "logits"  # the name is used as given
    assert "float32 [3, 512]" in output(
        bridge("logits", model, "--tokens", "1,2,3", "--backend", "reference", "--out", out)
    )
    logits = np.load(out)
    assert logits.dtype == np.float32 and logits.shape == (3, 512)
    bridge("logits", model, "--tokens", "1,2", "--backend", "reference", "--kv", "f32", "--out", out)
    shorter = np.load(out)
    assert np.abs(shorter - logits[:2]).max() < 0.05 * logits.std()  # the cache's rounding is all that differs
    assert not np.array_equal(shorter, logits[:2])


def test_generate_json(bridge, model):
    argv = (
        "generate",
        model,
        "--tokens",
        "5,6,7",
        "-n",
        6,
        "--temp",
        0,
        "--backend",
        "reference",
        "--ignore-eos",
        "--json",
    )
    found = json.loads(output(bridge(*argv)))
    assert list(found) == ["text", "tokens", "prompt_tokens", "finish_reason", "timings"]
    assert found["prompt_tokens"] == 3 and found["finish_reason"] == "length" and len(found["tokens"]) == 6
    with open_gguf(model) as file:
        assert found["text"] == file.tokenizer().decode(found["tokens"])
    timings = found["timings"]
    assert min(timings.values()) > 0
    assert timings["prompt_tokens_per_second"] == pytest.approx(3000 / timings["prompt_ms"], rel=0.01)
    assert timings["decode_tokens_per_second"] == pytest.approx(5000 / timings["decode_ms"], rel=0.01)
    assert json.loads(output(bridge(*argv)))["tokens"] == found["tokens"]


def test_generate_prints_text_and_puts_figures_on_standard_error(bridge, model):
    argv = ("generate", model, "-p", "a b", "-n", 5, "--seed", 9, "--backend", "reference", "--ignore-eos")
    status, out, err = bridge(*argv)
    assert status == 0
    assert json.loads(output(bridge(*argv, "--json")))["text"] + "\n" == out
    assert err.startswith("reference; ") and " + 5 tokens, length; prompt " in err


def test_a_grammar_file_is_followed_or_refused(bridge, model, tmp_path):
    def generate(content):
        (tmp_path / "x.gbnf").write_bytes(content)
        argv = ("generate", model, "-p", "a b", "-n", 12, "--seed", 9, "--backend", "reference", "--json")
        return bridge(*argv, "--grammar", tmp_path / "x.gbnf")

    found = json.loads(output(generate(b'root ::= ("yes" | "no") [!?]')))
    assert found["text"] in ("yes!", "yes?", "no!", "no?") and found["finish_reason"] == "stop"
    assert generate(b"root ::= yes")[::2] == (
        1,
        "bridge: rule 'yes' is used, but nothing defines it (line 1, column 10 of the grammar)\n",
    )
    assert generate(b"root ::= \xff")[::2] == (1, "bridge: the grammar file is not UTF-8 text: byte 9 does not belong there\n")
    status, _, err = bridge("generate", model, "-p", "a", "--grammar", tmp_path / "none.gbnf")
    assert status == 1 and "none.gbnf" in err


def test_sampling_options_reach_the_sampler(bridge, model):
    def tokens(*options):
        argv = (
            "generate",
            model,
            "--tokens",
            "5",
            "-n",
            8,
            "--backend",
            "reference",
            "--ignore-eos",
            "--json",
            *options,
        )
        return json.loads(output(bridge(*argv)))["tokens"]

    greedy = tokens("--temp", 0, "--penalty", 1)
    assert tokens("--top-k", 1, "--penalty", 1) == greedy
    assert tokens("--min-p", 1, "--penalty", 1) == greedy
    assert tokens("--temp", 1e-6, "--penalty", 1) == greedy
    hot = ("--temp", 5, "--top-k", 0, "--top-p", 1)
    assert tokens(*hot, "--seed", 1) == tokens(*hot, "--seed", 1) != tokens(*hot, "--seed", 2)
    assert tokens(*hot, "--seed", 1, "--top-p", 1e-6, "--penalty", 1) == greedy
    assert len(set(tokens("--temp", 0, "--presence-penalty", 100))) == 8


def test_the_end_token_stops_generation_and_is_not_counted(bridge, tmp_path, model):
    with open_gguf(model) as file:
        n_vocab = len(file.metadata["tokenizer.ggml.tokens"])
    first = json.loads(
        output(bridge("generate", model, "--tokens", "5", "-n", 1, "--temp", 0, "--backend", "reference", "--json"))
    )
    # The same weights, whose first pick is now declared to be the end token.
    data = Path(model).read_bytes()
    key = b"tokenizer.ggml.eos_token_id"
    at = data.index(key) + len(key) + 4
    assert int.from_bytes(data[at : at + 4], "little") == n_vocab - 1
    path = tmp_path / "ends.gguf"
    path.write_bytes(data[:at] + first["tokens"][0].to_bytes(4, "little") + data[at + 4 :])
    found = json.loads(
        output(bridge("generate", path, "--tokens", "5", "--temp", 0, "--backend", "reference", "--json"))
    )
    assert found["tokens"] == [] and found["text"] == "" and found["finish_reason"] == "stop"
    assert found["timings"]["time_to_first_token_ms"] is None


def test_bench_prints_figures(bridge, model):
    argv = ("bench", model, "-n", 4, "--prompt-tokens", 8, "--repeat", 2, "--backend", "reference")
    found = json.loads(output(bridge(*argv)))
    assert found["backend"] == "reference" and found["prompt_tokens"] == 8 and found["n_predict"] == 4
    assert len(found["runs"]) == 2
    assert min(run["decode_tokens_per_second"] for run in found["runs"]) <= found["decode_tokens_per_second"]
    assert found["prompt_tokens_per_second"] > 0 and found["model_bytes"] == os.path.getsize(model)


def test_a_synthetic_model_needs_no_file(bridge):
    options = ("--tokens", "5", "-n", 3, "--ctx", 16, "--backend", "reference", "--json")
    found = json.loads(output(bridge("generate", "synth:tiny-Q8_0", *options)))
    assert len(found["tokens"]) == 3
    status, _, err = bridge("generate", "synth:tiny", "--tokens", "5")
    assert status == 1 and "'synth:tiny' names no synthetic model" in err


def test_synth_writes_a_model_of_the_asked_shape(bridge, tmp_path):
    out = tmp_path / "m.gguf"
    argv = (
        "synth",
        "--arch",
        "qwen3",
        "--layers",
        1,
        "--vocab",
        300,
        "--head-dim",
        32,
        "--untied",
        "--quant",
        "q4_0",
        out,
    )
    assert output(bridge(*argv)).startswith(f"{out}: ")
    with open_gguf(out) as file:
        assert file.architecture == "qwen3"
        assert file.tensors["blk.0.attn_q.weight"].shape == (4 * 32, 256)
        assert file.tensors["output.weight"].shape == (300, 256)
        assert "blk.1.attn_q.weight" not in file.tensors
