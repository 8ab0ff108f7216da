"""The tests of tools/gpu_check.py: those of kernels and plans, shared among processes, each with a deadline of its own.

    python -m tools.gpu_check_tests FILE SHARD SHARDS SECONDS [WORDS]

A line of JSON is written to FILE for every test as it ends; the first has the number of tests of this process.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
FIRST = ("test_block_formats", "test_operations", "test_fused", "test_session", "test_goldens")
"""Of tests/gpu, the most telling."""
NOT_HERE = ("test_in_chromium", "test_fusion_bench", "test_kernel_bench", "test_upload", "test_weights",
            "test_wgsl", "test_costs")
"""They need a browser or Node, or no device."""
LEFT_OUT = ("real_model", "test_a_software_adapter_is_recognised")
"""Tests whose names have one of these words: they need a download, or a software adapter beside the GPU."""
MESSAGE_LENGTH = 600
STOPPED = None
ENDED_BY_ITSELF = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED,
                   pytest.ExitCode.NO_TESTS_COLLECTED)


class Recorder:
    """A pytest plugin: which tests of a shard run, until when, and what became of them."""

    def __init__(self, file: Path, shard: int, shards: int, seconds: float, words: Sequence[str]) -> None:
        self._file = file.open("w")
        self._shard, self._shards, self._words = shard, shards, words
        self._end = time.monotonic() + seconds

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        wanted = [item for item in items if not any(word in item.name for word in LEFT_OUT)
                  and (not self._words or any(word in item.nodeid for word in self._words))]
        items[:] = wanted[self._shard::self._shards]
        self._write({"tests": len(items)})

    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        if time.monotonic() >= self._end:
            item.session.shouldstop = "the time is over"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            message = str(report.longrepr)[-MESSAGE_LENGTH:] if report.outcome == "failed" else ""
            self._write({"test": report.nodeid, "outcome": report.outcome, "seconds": round(report.duration, 2),
                         "message": message})

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def run_in_processes(n: int, seconds: float, most_seconds: float, folder: Path, words: str) -> dict[str, Any]:
    """Run the tests in ``n`` processes that begin none after ``seconds`` and are killed after ``most_seconds``."""
    begin = time.monotonic()
    files, processes = [folder / f"{i}.jsonl" for i in range(n)], []
    for i, file in enumerate(files):
        command = [sys.executable, "-m", "tools.gpu_check_tests", str(file), str(i), str(n), str(seconds), words]
        with file.with_suffix(".log").open("wb") as log:
            processes.append(subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log))
    found: dict[str, Any] = {"passed": 0, "failed": [], "not_run": 0, "crashed": [], "stopped": []}
    for file, process in zip(files, processes, strict=True):
        try:
            status = process.wait(max(0.1, most_seconds - (time.monotonic() - begin)))
        except subprocess.TimeoutExpired:
            status = STOPPED
            process.kill()
            process.wait()
        _add(found, file, status, file.with_suffix(".log").read_text(errors="replace"))
    if not any(found.values()):
        found["crashed"].append(f"no test has one of the words {words!r} in its name")
    return {**found, "seconds": round(time.monotonic() - begin, 1)}


def _add(found: dict[str, Any], file: Path, status: int | None, log: str) -> None:
    """Add one process's lines; ``status`` is how it ended, or STOPPED."""
    text = file.read_text() if file.exists() else ""
    whole_lines = text.split("\n")[:-1]  # a killed process may have left a piece of one
    first, *lines = [json.loads(line) for line in whole_lines] or [{}]
    failed = [line for line in lines if line.get("outcome") == "failed"]
    found["passed"] += sum(line["outcome"] == "passed" for line in lines)
    found["failed"] += failed
    found["not_run"] += first.get("tests", 0) - len({line["test"] for line in lines})
    last = f"after {lines[-1]['test']}" if lines else "in the first test"
    if status == STOPPED:
        found["stopped"].append(f"a process of tests hung or was slow {last}")
    elif status not in ENDED_BY_ITSELF or not first:
        words = " ".join(log.split())[-300:]
        found["crashed"].append(f"a process of tests ended with status {status} {last}: {words}")


def main(arguments: Sequence[str]) -> int:
    file, shard, shards, seconds, listed = arguments
    words = [word for word in listed.split(",") if word]
    recorder = Recorder(Path(file), int(shard), int(shards), float(seconds), words)
    options = ["-q", "-p", "no:cacheprovider", "--no-header", "--rootdir", str(ROOT)]
    return pytest.main([*options, *test_files(words)], plugins=[recorder])


def test_files(words: Sequence[str] = ()) -> list[str]:
    """Those of tests/gpu that need only a device; where all words name files ("test_session.py::test_x"), these."""
    names = sorted(path.stem for path in (ROOT / "tests" / "gpu").glob("test_*.py"))
    wanted = dict.fromkeys(name for name in (*FIRST, *names) if name in names and name not in NOT_HERE)
    if words and all(".py" in word for word in words):
        wanted = [name for name in wanted if any(word.startswith(f"{name}.py") for word in words)]
    return [f"tests/gpu/{name}.py" for name in wanted]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
