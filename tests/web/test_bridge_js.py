"""The page's side of the bridge, tested in Node over a fake Worker."""

import shutil
import subprocess
from pathlib import Path

import pytest

JS_TESTS = Path(__file__).parents[1] / "js"


@pytest.mark.parametrize("path", sorted(JS_TESTS.glob("bridge*.test.mjs")), ids=lambda path: path.stem)
def test_bridge_in_node(path):
    node = shutil.which("node")
    assert node, "node is needed to test the page's side of the bridge"
    run = subprocess.run([node, "--test", "--test-timeout=20000", path], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "# fail 0" in run.stdout
