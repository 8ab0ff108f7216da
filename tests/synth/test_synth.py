"""Synthetic models load, run, have the sizes of real ones, and depend on nothing but their arguments."""

import asyncio
import hashlib

import numpy as np
import pytest

from bridge.errors import InputError
from bridge.gguf import open_gguf
from bridge.models import build_graph
from bridge.quants.types import row_nbytes
from bridge.runtime import GenerateOptions, LoadOptions, load_model
from bridge.sampling import SamplingOptions
from bridge.synth import SynthSource, open_synth, quant_mix, shape, write_model
from bridge.synth.model import tensor_list
from bridge.synth.quant_mix import NAMES
from bridge.synth.shapes import ARCHITECTURES, SHAPES
from bridge.synth.vocabulary import vocabulary

TEXT = "The quick brown fox, naïve café 12345 \n\t日本語"


def written(tmp_path, arch, quant, **changes):
    path = tmp_path / "model.gguf"
    write_model(path, shape(arch, "tiny", **changes), quant)
    return path


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_model_of_every_architecture_generates(tmp_path, arch):
    path = written(tmp_path, arch, "Q4_K_M", n_ff=256)

    async def run():
        model = await load_model(str(path), LoadOptions(n_ctx=32, backend="reference"))
        logits = await model.evaluate([1, 2, 3], outputs="all")
        options = GenerateOptions(n_predict=3, sampling=SamplingOptions(seed=1), ignore_eos=True)
        tokens = [piece.token async for piece in model.generate([1, 2, 3], options)]
        await model.close()
        return logits, tokens[: model.last_usage.completion_tokens]

    logits, tokens = asyncio.run(run())
    assert logits.shape == (3, 512) and np.isfinite(logits).all()
    assert 0.05 < logits.std() < 50
    assert len(tokens) == 3 and max(tokens) < 512


@pytest.mark.parametrize("quant", NAMES)
def test_every_mix_makes_a_file_the_graph_accepts(tmp_path, quant):
    with open_gguf(written(tmp_path, "llama", quant)) as file:
        build_graph(file.metadata, file.tensors, 32)
        assert file.tensors["blk.0.attn_q.weight"].type.name == quant_mix(quant).base
        assert file.tensors["token_embd.weight"].type.name == quant_mix(quant).output
        assert file.tensors["output_norm.weight"].type.name == "F32"
        for name in file.tensors:
            assert np.isfinite(file.array(name)).all(), name


def test_matrices_keep_the_size_of_what_they_multiply(tmp_path):
    with open_gguf(written(tmp_path, "llama", "Q4_K_M")) as file:
        assert file.array("blk.0.ffn_up.weight").std() == pytest.approx(1 / 16, rel=0.1)  # n_in is 256
        assert file.array("blk.0.attn_norm.weight").mean() == pytest.approx(1, abs=0.05)


def test_rows_that_no_k_quant_fits_fall_back_as_in_llama_cpp():
    mix = quant_mix("Q4_K_M")
    types = {name: mix.type_of(name, dims, 18).name for name, dims, _ in tensor_list(shape("gemma3", "270m"))}
    # A real gemma-3-270m-q4_k_m.gguf has these types: rows of 640 values are no multiple of 256, rows of 1024 and 2048 are.
    assert types["token_embd.weight"] == "Q8_0"
    assert types["blk.0.attn_q.weight"] == "Q5_0"
    assert types["blk.0.attn_v.weight"] == "Q8_0"
    assert types["blk.0.attn_output.weight"] == "Q4_K"
    assert types["blk.0.ffn_down.weight"] == "Q6_K"
    assert types["blk.2.ffn_down.weight"] == "Q4_K"
    counts = {kind: list(types.values()).count(kind) for kind in set(types.values())}
    assert counts == {"F32": 109, "Q5_0": 81, "Q4_K": 27, "Q8_0": 10, "Q6_K": 9}
    assert mix.type_of("blk.0.attn_q.weight", (64, 72), 2).name == "F16"


@pytest.mark.parametrize(
    ("arch", "size", "parameters", "quant", "gigabytes"),
    [  # parameters as published (embedding counted once where tied); sizes of files on the Hub, vocabulary included
        ("llama", "135m", 134.5e6, "Q8_0", 0.143),
        ("llama", "1b", 1.236e9, "Q4_K_M", 0.80),
        ("llama", "3b", 3.21e9, "Q4_K_M", 2.01),
        ("llama", "8b", 8.03e9, "Q4_K_M", 4.91),
        ("qwen2", "0.5b", 494e6, "Q8_0", 0.525),
        ("qwen3", "0.6b", 596e6, "Q4_K_M", 0.39),
        ("gemma2", "2b", 2.614e9, "Q4_K_M", 1.71),
        ("gemma3", "270m", 268e6, "Q4_K_M", 0.247),
        ("gemma3", "1b", 1.0e9, "Q4_K_M", 0.80),
    ],
)
def test_sizes_are_those_of_the_real_models(arch, size, parameters, quant, gigabytes):
    found, mix = shape(arch, size), quant_mix(quant)
    n_values = n_bytes = 0
    for name, dims, _ in tensor_list(found):
        n_values += np.prod(dims)
        n_bytes += row_nbytes(mix.type_of(name, dims, found.n_layer), int(np.prod(dims)))
    assert n_values == pytest.approx(parameters, rel=0.01)
    assert n_bytes / 1e9 == pytest.approx(gigabytes, rel=0.03)


def test_the_same_arguments_give_the_same_bytes(tmp_path):
    def digest(seed, **changes):
        path = tmp_path / "m.gguf"
        write_model(path, shape("llama", "tiny", **changes), "Q4_0", seed)
        return hashlib.sha256(path.read_bytes()).hexdigest()

    assert digest(1) == digest(1)
    assert digest(1) != digest(2)
    assert digest(1) != digest(1, n_layer=3)


def test_a_source_has_the_bytes_of_the_file_without_writing_one(tmp_path):
    path = written(tmp_path, "gemma3", "Q4_K_M", n_layer=3)
    data, source = path.read_bytes(), SynthSource(shape("gemma3", "tiny", n_layer=3), "Q4_K_M")
    assert source.size == len(data)
    assert b"".join(source.stream(0, source.size, 10_007)) == data
    for offset, length in ((0, 1), (5, 100_000), (len(data) // 2 + 1, 7), (len(data) - 3, 3), (9, 0)):
        assert source.read(offset, length) == data[offset : offset + length]
    with pytest.raises(InputError, match="past the end"):
        source.read(source.size - 1, 2)


def test_rows_differ_also_where_a_tensor_is_longer_than_what_it_is_made_of():
    with open_gguf(open_synth("synth:135m-Q8_0")) as file:
        rows = file.array("token_embd.weight")  # 28 MiB
        assert len(np.unique(rows[:, :4], axis=0)) == len(rows) == 49152
        assert len(np.unique(np.stack([file.array(f"blk.{i}.attn_k.weight")[0, :4] for i in range(30)]), axis=0)) == 30


def test_names_of_synthetic_models():
    with open_gguf(open_synth("synth:tiny-q4_0")) as file:
        assert file.architecture == "llama" and file.tensors["blk.0.attn_q.weight"].type.name == "Q4_0"
    with open_gguf(open_synth("synth:qwen3-tiny-Q4_K_M")) as file:
        assert file.architecture == "qwen3"


@pytest.mark.parametrize("n_vocab", [259, 300, 512, 2000, 49152])
def test_any_text_goes_through_the_vocabulary_and_back(tmp_path, n_vocab):
    from bridge.tokenizer import Tokenizer

    metadata = vocabulary(n_vocab, "smollm")
    assert len(metadata["tokenizer.ggml.tokens"]) == len(set(metadata["tokenizer.ggml.tokens"])) == n_vocab
    tokenizer = Tokenizer.from_metadata(metadata)
    ids = tokenizer.encode(TEXT)
    assert tokenizer.decode(ids) == TEXT
    assert len(ids) < len(TEXT.encode()) or n_vocab == 259
    assert tokenizer.encode("<|im_end|>") == [n_vocab - 1]
    assert n_vocab - 1 in tokenizer.eog_ids


def test_the_largest_vocabulary_of_the_table_can_be_made():
    largest = max(found.n_vocab for found in SHAPES.values())
    assert len(set(vocabulary(largest, "smollm")["tokenizer.ggml.tokens"])) == largest == 262144


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: shape("mamba"), "no synthetic architecture 'mamba'; known are llama, qwen2"),
        (lambda: shape("gemma2", "3b"), "gemma2 has no size '3b'; it has tiny, 2b, 9b"),
        (lambda: shape("llama", n_embd=250), "250 cannot be split among 4 heads"),
        (lambda: shape("llama", n_head_kv=3), "4 heads cannot share 3"),
        (lambda: shape("qwen3", head_dim=5), "even to be rotated; got 5"),
        (lambda: quant_mix("Q4_K_XL"), "no quantisation mix 'Q4_K_XL'; known are Q4_0"),
        (lambda: open_synth("synth:"), "'synth:' names no synthetic model; such a name is synth:SIZE-QUANT"),
        (lambda: open_synth("synth:Q4_0"), "names no synthetic model"),
        (lambda: open_synth("synth:1t-Q4_0"), "llama has no size '1t'"),
        (lambda: vocabulary(258, "smollm"), "at least 259 tokens"),
        (lambda: vocabulary(10**6, "smollm"), "at most .* tokens; got 1000000"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(InputError, match=message):
        call()
