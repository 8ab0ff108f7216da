"""web/gguf.js in Node, with the built site's engine in its worker."""

import os
import subprocess

from e2e import conftest


def test_gguf_in_node():
    run = subprocess.run(
        ["node", "--test", "--test-timeout=60000", "tests/js/gguf.test.mjs"],
        cwd=conftest.ROOT, capture_output=True, text=True, timeout=180,
        env=os.environ | {"GGUF_ASSETS": str(conftest.SITE)},
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    assert "\n# pass 0\n" not in run.stdout and "\n# skipped 0\n" in run.stdout
