"""The pass over a file that fills the CPU backend's memory in a page, tested by Node's test runner."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_simd_upload():
    run = subprocess.run(["node", "--test", "tests/js/simd_upload.test.mjs"], cwd=ROOT, capture_output=True, text=True,
                         timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "\n# pass 0\n" not in run.stdout and "\n# skipped 0\n" in run.stdout
