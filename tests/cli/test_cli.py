"""The command line as a program: how bad usage and bad input are told, exit statuses, signals."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request

import pytest

from bridge.cli import COMMANDS
from bridge.gguf import open_gguf


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
