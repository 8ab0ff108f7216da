"""The page's WebGPU device, tested in Node over a fake ``navigator.gpu``."""

import shutil
import subprocess
from pathlib import Path

TEST = Path(__file__).parents[1] / "js" / "gpu_device.test.mjs"


def test_gpu_device_in_node():
    node = shutil.which("node")
    assert node, "node is needed to test the page's device"
    run = subprocess.run([node, "--test", "--test-timeout=20000", TEST], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "# fail 0" in run.stdout and "# pass 0" not in run.stdout
