"""Commands that read a file and run nothing: inspect, tokenize, detokenize, rows; paths and addresses."""

import io
import json
import os
import sys

import numpy as np

from bridge.gguf import open_gguf
from bridge.gguf_writer import write_gguf
from tests.cli.commands import TEXT, output
from tests.gguf.split_model import write_shards


def test_inspect_prints_what_the_file_holds(bridge, model):
    name, *lines = output(bridge("inspect", model)).splitlines()
    assert name == model
    assert lines == [
        f"  {os.path.getsize(model) / 1e6:.2f} MB on disk, GGUF v3",
        "  20 tensors, 1.31M parameters",
        "    F32         5 tensors       0.0 MiB",
        "    Q8_0       15 tensors       1.3 MiB",
        "  largest: token_embd.weight [256, 512] Q8_0, 0.1 MiB",
        "  llama, 2 layers, width 256, context 64, 512 tokens (gpt2/smollm)",
        "  runs on the CPU and WebGPU",
        "  256 KiB read",
    ]


def test_inspect_lists_tensors_when_asked(bridge, model):
    lines = output(bridge("inspect", model, "--tensors")).splitlines()
    assert "    blk.1.attn_k.weight [256, 128] Q8_0, 0.0 MiB" in lines
    assert len(lines) == 9 + 20


def test_inspect_json_holds_everything(bridge, model):
    found = json.loads(output(bridge("inspect", model, "--json")))
    with open_gguf(model) as file:
        assert found["size"] == file.size and found["version"] == 3 and found["architecture"] == "llama"
        assert found["n_tensors"] == len(found["tensors"]) == 20
        assert found["n_parameters"] == sum(tensor.n_elements for tensor in file.tensors.values())
        assert found["types"]["Q8_0"]["nbytes"] == sum(t.nbytes for t in file.tensors.values() if t.type.name == "Q8_0")
        by_name = {tensor["name"]: tensor for tensor in found["tensors"]}
        info = file.tensors["blk.1.attn_k.weight"]
        assert by_name[info.name] == {
            "name": info.name, "type": "Q8_0", "shape": [128, 256], "offset": info.offset, "nbytes": info.nbytes,
        }  # fmt: skip
    assert found["largest"]["name"] == "token_embd.weight"
    assert found["metadata"]["llama.block_count"] == 2
    assert found["metadata"]["tokenizer.ggml.tokens"]["length"] == 512


def test_inspect_says_what_is_missing(bridge, tmp_path):
    path = tmp_path / "unknown.gguf"
    write_gguf(path, {"general.architecture": "abacus"}, [("t", "F32", (4,), bytes(16))])
    missing = json.loads(output(bridge("inspect", path, "--json")))["missing"]
    assert set(missing) == {"reference", "simd", "webgpu"}
    line = next(line for line in output(bridge("inspect", path)).splitlines() if "run" in line)
    assert line == f"  does not run on the CPU or WebGPU: {missing['simd']}"


def test_inspect_reads_the_header_of_a_large_file_only(bridge, tmp_path):
    path = tmp_path / "large.gguf"
    write_gguf(path, {"general.architecture": "llama"}, [("t", "I8", (32 << 20,), bytes(32 << 20))])
    found = json.loads(output(bridge("inspect", path, "--json")))
    assert found["size"] > 32 << 20
    assert found["bytes_read"] < 4 << 20


def test_inspect_of_a_split_model(bridge, model, tmp_path):
    paths = write_shards(model, tmp_path, [12, 8])
    _, first, *lines = output(bridge("inspect", paths[1])).splitlines()
    assert first == f"  {sum(path.stat().st_size for path in paths) / 1e6:.2f} MB on disk in 2 files, GGUF v3"
    assert "  20 tensors, 1.31M parameters" in lines and "  512 KiB read" in lines
    found = json.loads(output(bridge("inspect", paths[0], "--json")))
    assert found["shards"] == [path.stat().st_size for path in paths]
    assert [tensor["shard"] for tensor in found["tensors"]] == [0] * 12 + [1] * 8


def test_inspect_of_a_file_without_tensors_or_architecture(bridge, tmp_path):
    path = tmp_path / "empty.gguf"
    write_gguf(path, {})
    assert "0 tensors, 0.00M parameters" in output(bridge("inspect", path))


def test_tokenize_and_detokenize_are_inverse(bridge, model):
    ids = output(bridge("tokenize", model, TEXT)).strip()
    with open_gguf(model) as file:
        assert [int(i) for i in ids.split(",")] == file.tokenizer().encode(TEXT)
    assert json.loads(output(bridge("tokenize", model, TEXT, "--json"))) == [int(i) for i in ids.split(",")]
    assert output(bridge("detokenize", model, "--special", ids)) == TEXT + "\n"
    assert output(bridge("detokenize", model, *ids.split(","))) == TEXT.replace("<|im_end|>", "") + "\n"
    assert json.loads(output(bridge("detokenize", model, ids, "--special", "--json"))) == TEXT


def test_special_tokens_in_the_text_can_be_plain_text(bridge, model):
    special = output(bridge("tokenize", model, "<|im_end|>"))
    plain = output(bridge("tokenize", model, "--no-parse-special", "<|im_end|>"))
    assert special.strip() == "511"
    assert plain.count(",") > 3 and "511" not in plain.split(",")


def test_no_special_leaves_out_the_begin_token(bridge, tmp_path):
    from bridge.synth.vocabulary import vocabulary

    path = tmp_path / "vocabulary.gguf"
    write_gguf(
        path, {"general.architecture": "llama", **vocabulary(300, "smollm"), "tokenizer.ggml.add_bos_token": True}
    )
    with_bos = json.loads(output(bridge("tokenize", path, "a", "--json")))
    assert with_bos[0] == 297
    assert json.loads(output(bridge("tokenize", path, "a", "--json", "--no-special"))) == with_bos[1:]


def test_a_dash_reads_standard_input_byte_for_byte(bridge, model, monkeypatch):
    for raw in ("né\n".encode(), b"\xff\xfe broken", b""):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw), encoding="ascii"))
        with open_gguf(model) as file:
            expected = file.tokenizer().encode(raw)
        assert json.loads(output(bridge("tokenize", model, "-", "--json"))) == expected


def test_rows_decodes_and_counts_what_it_read(bridge, model):
    lines = output(bridge("rows", model, "token_embd.weight", 3, "0,3")).splitlines()
    with open_gguf(model) as file:
        values = file.rows("token_embd.weight", [3, 0, 3])
    assert [line.split(":")[0] for line in lines[:3]] == ["3", "0", "3"]
    assert lines[0] == f"3: {' '.join(f'{v:.6g}' for v in values[0][:8])} … 248 more"
    assert lines[3].startswith("3 rows of 256 in ")
    assert lines[3].endswith(" ms -- 3.0 KiB decoded, not 0.1 MiB (0.5 KiB read)")  # two rows of 8 blocks of 34 bytes
    found = json.loads(output(bridge("rows", model, "token_embd.weight", 3, 0, "--json")))
    assert found["bytes_read"] == 2 * 8 * 34 and found["tensor_bytes"] == 512 * 8 * 34
    assert [row["row"] for row in found["rows"]] == [3, 0]
    assert np.array_equal(np.float32([row["values"] for row in found["rows"]]), values[:2])


def test_a_url_is_as_good_as_a_path(bridge, model, address, tmp_path):
    url = f"{address}/tiny.gguf?token=secret"
    lines = output(bridge("inspect", url)).splitlines()
    assert lines[0] == "tiny.gguf"
    assert lines[1:] == output(bridge("inspect", model)).splitlines()[1:]
    assert output(bridge("tokenize", url, TEXT)) == output(bridge("tokenize", model, TEXT))
    row = ("token_embd.weight", 7, "--json")
    assert output(bridge("rows", url, *row)) == output(bridge("rows", model, *row))
    arrays = []
    for source in (model, url):
        bridge("logits", source, "--tokens", "1,2", "--backend", "reference", "--out", tmp_path / "logits.npy")
        arrays.append(np.load(tmp_path / "logits.npy"))
    assert np.array_equal(*arrays)


def test_errors_do_not_show_the_url(bridge, address):
    for url in (f"{address}/missing.gguf?token=secret", "http://127.0.0.1:9/tiny.gguf?token=secret"):
        status, out, err = bridge("inspect", url)
        assert (status, out) == (1, "")
        assert err.startswith("bridge: ") and err.count("\n") == 1
        assert "secret" not in err and "gguf?" not in err
