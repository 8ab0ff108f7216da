"""The command line: what each command prints, how bad input is told, exit statuses."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from bridge.cli import COMMANDS, main
from bridge.gguf import open_gguf
from bridge.gguf_writer import write_gguf
from bridge.serve import create_app, running_server
from bridge.synth import shape, write_model
from tests.gguf.split_model import write_shards

TEXT = "naïve café, 12 <|im_end|>"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    write_model(path, shape("llama", "tiny", n_ctx=64), "Q8_0", seed=3)
    return str(path)


@pytest.fixture
def bridge(capsys):
    """Run one command; (status, standard output, standard error)."""

    def run(*argv):
        status = main([str(argument) for argument in argv])
        return status, *capsys.readouterr()

    return run


def output(result):
    status, out, err = result
    assert (status, err) == (0, "")
    return out


# ---------------------------------------------------------------- inspect


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


# ---------------------------------------------------------------- tokens and rows


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


# ---------------------------------------------------------------- running a model


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


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["nosuch"],
        ["inspect"],
        ["inspect", "MODEL", "extra"],
        ["inspect", "--frob", "MODEL"],
        ["tokenize", "MODEL"],
        ["detokenize", "MODEL"],
        ["detokenize", "MODEL", "1", "x"],
        ["rows", "MODEL", "token_embd.weight"],
        ["rows", "MODEL", "token_embd.weight", "1.5"],
        ["logits", "MODEL", "--tokens", "1"],
        ["logits", "MODEL", "--out", "x.npy"],
        ["logits", "MODEL", "--tokens", ",", "--out", "x.npy"],
        ["logits", "MODEL", "--tokens", "1", "--out", "x.npy", "--kv", "f8"],
        ["generate", "MODEL"],
        ["generate", "MODEL", "-p", "a", "--tokens", "1"],
        ["generate", "MODEL", "-p", "a", "-n", "0"],
        ["generate", "MODEL", "-p", "a", "-n", "many"],
        ["generate", "MODEL", "-p", "a", "--temp", "warm"],
        ["generate", "MODEL", "-p", "a", "--backend", "tpu"],
        ["generate", "MODEL", "-p", "a", "--ctx", "-1"],
        ["synth"],
        ["synth", "--layers", "0", "x.gguf"],
        ["embed", "MODEL"],
        ["embed", "MODEL", "--tokens", "1", "--pooling", "max"],
        ["rank", "MODEL", "query"],
        ["serve", "--port", "x"],
    ],
    ids=" ".join,
)
def test_bad_usage_is_one_line_and_status_2(bridge, model, argv):
    status, out, err = bridge(*(model if word == "MODEL" else word for word in argv))
    assert (status, out) == (2, "")
    assert err.startswith("bridge: ") and err.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["inspect", "no-such-file.gguf"], "cannot open 'no-such-file.gguf'"),
        (["inspect", "."], "."),
        (["tokenize", "NOT_GGUF", "a"], "GGUF"),
        (["generate", "NOT_GGUF", "-p", "a"], "GGUF"),
        (["detokenize", "MODEL", "512"], "token id 512 is outside the vocabulary of 512 tokens"),
        (["detokenize", "MODEL", "-1"], "token id -1 is outside"),
        (["rows", "MODEL", "nosuch.weight", "0"], "no tensor 'nosuch.weight'"),
        (["rows", "MODEL", "token_embd.weight", "512"], "row 512 is not one of its 512 rows"),
        (["rows", "MODEL", "token_embd.weight", "-1"], "row -1 is not"),
        (
            ["logits", "MODEL", "--tokens", "512", "--out", "OUT", "--backend", "reference"],
            "512; it must be .* 0 to 511",
        ),
        (["logits", "MODEL", "--tokens", "1", "--out", "no/such/folder/x.npy"], "no folder 'no/such/folder'"),
        (
            ["logits", "MODEL", "--tokens", "1,2,3", "--ctx", "2", "--out", "OUT", "--backend", "reference"],
            "3 tokens.* 2 tokens",
        ),
        (["generate", "MODEL", "-p", "", "--backend", "reference"], "prompt is empty"),
        (["generate", "MODEL", "-p", "a", "--min-p", "2"], "min_p must be a number from 0 to 1; got 2.0"),
        (["generate", "MODEL", "-p", "a", "--temp", "nan"], "temp must be a finite number"),
        (["generate", "MODEL", "-p", "a", "--presence-penalty", "1e39"], "presence_penalty must be a finite"),
        (["embed", "MODEL", "--tokens", "512", "--backend", "reference"], "512; it must be .* 0 to 511"),
        (["rank", "MODEL", "query", "document", "--backend", "reference"], "no reranker"),
        (["synth", "--arch", "nosuch", "OUT"], "no synthetic architecture 'nosuch'"),
        (["synth", "--quant", "Q9", "OUT"], "no quantisation mix 'Q9'"),
        (["synth", "--seed", "-1", "OUT"], "seed"),
        (["synth", "no/such/folder/x.gguf"], "No such file or directory"),
        (["serve", "no-such-folder"], "no folder 'no-such-folder'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_line_and_status_1(bridge, model, tmp_path, argv, message):
    not_gguf = tmp_path / "page.gguf"
    not_gguf.write_bytes(b"<!DOCTYPE html>" + bytes(100))
    words = {"MODEL": model, "NOT_GGUF": str(not_gguf), "OUT": str(tmp_path / "out")}
    status, out, err = bridge(*(words.get(word, word) for word in argv))
    assert (status, out) == (1, "")
    assert err.startswith("bridge: ") and err.count("\n") == 1
    assert re.search(message, err)
    assert not (tmp_path / "out").exists()


def test_help_and_version_are_no_errors(bridge):
    for argv in (["--help"], ["--version"], *([command.__name__.rpartition(".")[2], "--help"] for command in COMMANDS)):
        status, out, err = bridge(*argv)
        assert status == 0 and out and not err


def test_an_interrupt_is_status_130(bridge, model, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("bridge.gguf.open_gguf", interrupted)
    assert bridge("inspect", model) == (130, "", "")


# ---------------------------------------------------------------- the process


def process(*argv, **options):
    return subprocess.Popen([sys.executable, "-m", "bridge", *argv], **options)


def test_the_module_runs_as_a_program(model):
    done = subprocess.run(
        [sys.executable, "-m", "bridge", "tokenize", model, b"caf\xc3\xa9 \xff", "--json"],
        capture_output=True,
        env={**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    )
    assert done.returncode == 0 and done.stderr == b""
    with open_gguf(model) as file:
        assert json.loads(done.stdout) == file.tokenizer().encode(b"caf\xc3\xa9 \xff")


def test_a_reader_that_goes_away_is_no_error(model):
    running = process(
        "rows",
        model,
        "token_embd.weight",
        *map(str, range(500)),
        "--json",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    running.stdout.close()
    assert running.stderr.read() == b""
    assert running.wait(20) == 141


def test_ctrl_c_ends_a_generation_quietly(model):
    argv = ("generate", model, "-p", "a", "-n", "4000", "--ctx", "4096", "--ignore-eos", "--backend", "reference")
    running = process(*argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert running.stdout.read(1)  # it generates
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=20)
    assert (running.returncode, err) == (130, b"")


def test_serve_prints_its_address_and_serves_until_interrupted(tmp_path):
    (tmp_path / "a.txt").write_text("content")
    running = process("serve", str(tmp_path), "--port", "0", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    address = re.search(r"http://[\w.]+:\d+", running.stdout.readline())[0]
    with urllib.request.urlopen(f"{address}/a.txt") as answer:
        assert answer.read() == b"content"
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=20)
    assert (running.returncode, err) == (130, "")


def test_commands_that_only_read_import_no_numpy(model):
    program = (
        "import sys; from bridge.cli import main; sys.modules['numpy'] = None\n"
        f"sys.exit(main(['inspect', {model!r}]) or main(['tokenize', {model!r}, 'a b']))"
    )
    assert subprocess.run([sys.executable, "-c", program], stdout=subprocess.DEVNULL).returncode == 0


# ---------------------------------------------------------------- over http


@pytest.fixture(scope="module")
def address(model):
    with running_server(create_app(os.path.dirname(model))) as base:
        yield base


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
