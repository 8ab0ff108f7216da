"""The page's byte source, tested by Node's test runner."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("file", sorted(path.name for path in (ROOT / "tests/js").glob("byte_source*.test.mjs")))
def test_byte_source(file):
    run = subprocess.run(["node", "--test", f"tests/js/{file}"], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "\n# pass 0\n" not in run.stdout and "\n# skipped 0\n" in run.stdout
