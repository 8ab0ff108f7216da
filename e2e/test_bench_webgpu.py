"""The benchmark of a page's WebGPU runs the engine's own measurements there."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def bench(*arguments):
    command = [sys.executable, "-m", "tools.bench_webgpu", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)


def test_a_synthetic_model_is_measured_in_a_page(tmp_path):
    out = tmp_path / "found.json"
    run = bench("--models", "synth:tiny-Q8_0", "--prompt-tokens", "8,4", "-n", 2, "--repeat", 1, "--seconds", 1,
                "--ctx", 32, "--out", out)
    assert run.returncode == 0, run.stderr
    (found,) = json.loads(out.read_text())["models"]
    assert found["model"] == "synth:tiny-Q8_0" and found["backend"] == "webgpu" and found["browser"]
    assert [prompt["tokens"] for prompt in found["prompts"]] == [8, 4]
    assert 0 < found["per_token"]["calls"] <= 8 and found["per_token"]["created"] == 0
    assert found["per_token"]["dispatches"] == sum(row["calls"] for row in found["decode_kernels"]["kernels"])
    assert found["device"]["copy_gb_per_second"] > 0


def test_a_model_that_is_not_there_is_one_line(tmp_path):
    run = bench("--models", "no-such.gguf", "--out", tmp_path / "x.json")
    assert run.returncode == 1 and "there is no file 'no-such.gguf'" in run.stderr.splitlines()[-1]
