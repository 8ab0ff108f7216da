"""With --no-skips (and in CI) a skipped test, or a file that skips itself, is a failure."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

SKIPPING = "import pytest\n@pytest.mark.skip(reason='no device')\ndef test_it(): pass\n"
SKIPPING_FILE = "import pytest\npytest.skip('no device here', allow_module_level=True)\n"
PASSING = "import pytest\ndef test_it(): pass\n@pytest.mark.xfail(reason='known')\ndef test_known(): assert False\n"


def run_pytest(tmp_path, pytestconfig, text: str, *options: str, **environment: str) -> subprocess.CompletedProcess:
    (tmp_path / "conftest.py").write_text((pytestconfig.rootpath / "conftest.py").read_text())
    (tmp_path / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    env = {name: value for name, value in os.environ.items() if name != "CI"} | environment
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=env)


@pytest.mark.parametrize("text", [SKIPPING, SKIPPING_FILE])
def test_a_skip_fails_when_skips_are_not_allowed(tmp_path, pytestconfig, text):
    allowed = run_pytest(tmp_path, pytestconfig, text)
    assert "1 skipped" in allowed.stdout
    for refused in (
        run_pytest(tmp_path, pytestconfig, text, "--no-skips"),
        run_pytest(tmp_path, pytestconfig, text, CI="true"),
    ):
        assert refused.returncode != 0
        assert "no device" in refused.stdout and "a skip is a failure here" in refused.stdout


def test_passes_and_expected_failures_are_left_alone(tmp_path, pytestconfig):
    assert run_pytest(tmp_path, pytestconfig, PASSING, "--no-skips").returncode == 0
