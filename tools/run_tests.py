"""Runs every test: ``python -m tools.run_tests [pytest arguments]``.

The tests under CPython and those in the browser run side by side, each in a process of its own: together they take as long
as the longer half, and neither has the other's event loop or device in its way. Arguments that name tests go to one pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HALVES = ("tests", "e2e")
LOG = ROOT / "build" / "tests-in-the-browser.log"
NOTHING_SELECTED = pytest.ExitCode.NO_TESTS_COLLECTED


def main(arguments: Sequence[str]) -> int:
    if any((ROOT / argument.partition("::")[0]).exists() for argument in arguments if not argument.startswith("-")):
        return _pytest(arguments).wait()
    LOG.parent.mkdir(exist_ok=True)
    with LOG.open("w") as log:
        in_browser = _pytest([HALVES[1], *arguments], stdout=log, stderr=subprocess.STDOUT)
        try:
            status = _pytest([HALVES[0], *arguments], preexec_fn=_let_others_go_first).wait()
            statuses = [status, in_browser.wait()]
        except BaseException:
            in_browser.terminate()
            in_browser.wait()
            raise
    print(f"\n{'=' * 30} in the browser {'=' * 30}\n{LOG.read_text()}", flush=True)
    return _joined(statuses)


def _let_others_go_first() -> None:
    """The browser's half is the longer one, and has waits that are measured."""
    os.nice(3)


def _joined(statuses: Sequence[int]) -> int:
    """The first failure; that one half has none of the selected tests is none, unless the other has none either."""
    failures = [status for status in statuses if status not in (0, NOTHING_SELECTED)]
    return failures[0] if failures else min(statuses)


def _pytest(arguments: Sequence[str], **options: object) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-m", "pytest", *arguments], cwd=ROOT, **options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
