"""``make run``'s program: a page completes a prompt, and what went wrong is one sentence."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

MODEL = "tests/data/models/llama-untied-f16.gguf"


@pytest.fixture
def run(pytestconfig):
    def start(*options: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "tools.run_page", *options]
        return subprocess.run(command, cwd=pytestconfig.rootpath, capture_output=True, text=True, timeout=240)

    return start


def test_it_streams_a_completion_and_says_what_it_ran_on(run):
    done = run("--prompt", "Hello", "--model", MODEL, "--n-predict", "4")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Hello")
    assert re.search(r"^prompt   \d+ tokens, [\d.]+ tokens/s \(first token after \d+ ms\)$", done.stdout, re.M)
    assert re.search(r"^decode   4 tokens, [\d.]+ tokens/s \(length\)$", done.stdout, re.M)
    assert re.search(r"^backend  \S.*, worker$", done.stdout, re.M)
    assert "100 %" in done.stderr and "loaded in" in done.stderr


@pytest.mark.parametrize(
    ("options", "status", "sentence"),
    [
        (("--model", "no-such-model"), 1, "MODEL is one of smollm2, gemma3, a GGUF file or an http(s) address"),
        (("--model", "pyproject.toml"), 1, "GGUF"),
        (("--n-predict", "0"), 2, "must be a whole number from 1 on, got '0'"),
    ],
)
def test_what_goes_wrong_is_one_sentence(run, options, status, sentence):
    failed = run("--prompt", "Hello", *options)
    assert failed.returncode == status
    assert sentence in failed.stderr.strip().splitlines()[-1]
    assert "Traceback" not in failed.stderr
