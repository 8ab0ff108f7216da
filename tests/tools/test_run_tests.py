"""Both halves of the tests run and count; arguments that name tests go to one pytest."""

import pytest
from tools import run_tests

OK, FAILED, NONE = 0, 1, 5


@pytest.mark.parametrize("statuses, joined", [
    ([OK, OK], OK), ([OK, FAILED], FAILED), ([FAILED, OK], FAILED), ([NONE, OK], OK), ([OK, NONE], OK), ([NONE, NONE], NONE),
    ([NONE, FAILED], FAILED), ([2, FAILED], 2)])
def test_a_failure_of_either_half_is_one(statuses, joined):
    assert run_tests._joined(statuses) == joined


class Finished:
    def __init__(self, status):
        self.status = status

    def wait(self):
        return self.status


@pytest.fixture
def started(monkeypatch, tmp_path):
    runs = []

    def start(arguments, **options):
        runs.append(list(arguments))
        return Finished(FAILED if "e2e" in arguments else OK)

    monkeypatch.setattr(run_tests, "_pytest", start)
    monkeypatch.setattr(run_tests, "LOG", tmp_path / "log")
    return runs


def test_both_halves_get_the_arguments(started, capsys):
    assert run_tests.main(["-k", "boot"]) == FAILED
    assert sorted(started) == [["e2e", "-k", "boot"], ["tests", "-k", "boot"]]


def test_named_tests_are_run_alone(started):
    assert run_tests.main(["tests/tools/test_run_tests.py::test_x", "-q"]) == OK
    assert started == [["tests/tools/test_run_tests.py::test_x", "-q"]]
