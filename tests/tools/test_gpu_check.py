"""The check of a machine's GPU: its parts on a few tests, and the folder it travels in."""

import json
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from tools import gpu_check, gpu_check_kit, gpu_check_tests
from tools.gpu_check import Check

ROOT = Path(__file__).parents[2]
QUICK = "test_texts.py::"


@pytest.fixture
def check(tmp_path):
    return Check(Namespace(budget=60.0, out=tmp_path / "found.json", only=QUICK, models=""))


def python(program):
    return [sys.executable, "-c", program]


def test_tests_are_shared_among_processes(tmp_path):
    names = ["a[1]", "b", "test_of_a_real_model", "c", "a[2]"]
    for words, shards in (([], [["a[1]", "c"], ["b", "a[2]"]]), (["a["], [["a[1]"], ["a[2]"]])):
        for shard, expected in enumerate(shards):
            items = [Namespace(name=name, nodeid=f"test_x.py::{name}") for name in names]
            recorder = gpu_check_tests.Recorder(tmp_path / "0.jsonl", shard, 2, 60, words)
            recorder.pytest_collection_modifyitems(items)
            assert [item.name for item in items] == expected
            assert json.loads((tmp_path / "0.jsonl").read_text()) == {"tests": len(expected)}


def test_no_test_begins_when_the_time_is_over(tmp_path):
    for seconds, stops in ((60, False), (0, True)):
        item = Namespace(session=Namespace(shouldstop=False))
        gpu_check_tests.Recorder(tmp_path / "0.jsonl", 0, 1, seconds, []).pytest_runtest_protocol(item)
        assert bool(item.session.shouldstop) == stops


def test_a_word_that_names_nothing_is_told(tmp_path):
    found = gpu_check_tests.run_in_processes(1, 60, 60, tmp_path, "test_texts.py::no_such_test")
    assert found["crashed"] == ["no test has one of the words 'test_texts.py::no_such_test' in its name"]


def lines(tmp_path, *written):
    file = tmp_path / "0.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in written) + '{"test": "cut o')
    return file


def test_a_process_that_died_leaves_what_it_wrote(tmp_path):
    found = {"passed": 0, "failed": [], "not_run": 0, "crashed": [], "stopped": []}
    file = lines(tmp_path, {"tests": 5}, {"test": "a", "outcome": "passed"},
                 {"test": "b", "outcome": "failed", "message": "m"})
    gpu_check_tests._add(found, file, -11, "Fatal: device")
    assert (found["passed"], found["not_run"]) == (1, 3)
    assert [test["test"] for test in found["failed"]] == ["b"]
    assert found["crashed"] == ["a process of tests ended with status -11 after b: Fatal: device"]
    gpu_check_tests._add(found, file, gpu_check_tests.STOPPED, "")
    assert found["stopped"] == ["a process of tests hung or was slow after b"] and len(found["crashed"]) == 1


@pytest.mark.parametrize("message, words", [
    ("assert x\nE   AssertionError: differs by 2\nE     and 3\n\nfile.py:9: AssertionError", "and 3"),
    ("Fatal\nsomething\n", "something"),
    ("", ""),
])
def test_what_a_test_says_last(message, words):
    assert gpu_check._last_words(message) == words


def test_a_part_that_fails_or_hangs_leaves_the_others_and_the_file(check):
    assert check._part("good", python("print('{\"a\": 1}')"), 30)["json"] == {"a": 1}
    assert "status 3" in check._part("bad", python("import sys; sys.exit(3)"), 30)["problem"]
    assert "stopped after 1 s" in check._part("slow", python("import time; time.sleep(30)"), 1)["problem"]
    check._part("large", python("import sys; print('out of memory', file=sys.stderr); sys.exit(1)"), 30)
    written = json.loads(check._options.out.read_text())["parts"]
    assert written["good"]["json"] == {"a": 1} and set(written) == {"good", "bad", "slow", "large"}
    assert check._problems == ["bad, which ended with status 3", "slow, which was stopped after 1 s"]
    assert check._missing == ["large, which ended with status 1"]


def test_a_part_that_the_budget_cut_is_missing_not_wrong(check):
    check._options.budget = 1.2
    check._part("slow", python("import time; time.sleep(30)"), 30)
    assert check._problems == [] and len(check._missing) == 1
    check._bench("synth:tiny-Q4_0", gpu_check.SOFTWARE_BENCH)
    assert check._missing[1:] == ["synth:tiny-Q4_0"]


def test_the_whole_check_on_this_machines_adapter(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(gpu_check, "SOFTWARE_BENCH", ("--prompt-tokens", "4", "--n-predict", "2", "--ctx", "16"))
    for name in ("SECONDS_A_MODEL", "SECONDS_OF_VARIANTS"):
        monkeypatch.setattr(gpu_check, name, 1.0)
    out = tmp_path / "found.json"
    status = gpu_check.main(["all", "--out", str(out), "--only", QUICK, "--models", "synth:tiny-Q8_0"])
    found = json.loads(out.read_text())
    assert status == found["status"] in (gpu_check.PASSED, gpu_check.ONLY_SOFTWARE, gpu_check.INCOMPLETE)
    assert found["correctness"]["passed"] and not found["problems"]
    assert found["parts"]["device"]["json"]["copy_gb_per_second"] > 0
    assert found["parts"]["bench synth:tiny-Q8_0"]["json"]["decode_tokens_per_second"] > 0
    assert found["parts"]["variants"]["json"][0]["kernel"] == "matmul Q8_0 64x64 default"
    if found["parts"]["device"]["json"]["info"]["is_software"]:
        assert "THIS IS A SOFTWARE ADAPTER" in capsys.readouterr().out


def test_a_driver_library_without_a_description_gets_one(tmp_path):
    library = tmp_path / "libGLX_nvidia.so.0"
    library.touch()
    script = f"""source {ROOT}/tools/gpu_check.sh
    ldconfig() {{ echo "	libGLX_nvidia.so.0 (libc6,x86-64) => {library}"; }}
    for file in $(driver_files); do case $file in "$temporary"/*) cat "$file";; esac; done"""
    found = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert json.loads(found.stdout.splitlines()[0])["ICD"]["library_path"] == str(library)


def test_the_folder_that_travels_has_all_that_its_tests_need(tmp_path):
    gpu_check_kit.copy_project(tmp_path)
    program = ("import pytest, sys; from tools.gpu_check_tests import test_files;"
               "sys.exit(pytest.main(['-q', '--collect-only', '-p', 'no:cacheprovider', *test_files()]))")
    # -P and this folder alone: nothing comes from the tree that the folder was copied from.
    found = subprocess.run([sys.executable, "-P", "-c", program], cwd=tmp_path, capture_output=True, text=True,
                           env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"})
    assert found.returncode == 0, found.stdout[-2000:]
    assert "test_goldens.py" in found.stdout
    modules = subprocess.run([sys.executable, "-P", "-c", "import bridge; print(bridge.__file__)"], cwd=tmp_path,
                             capture_output=True, text=True, env={"PYTHONPATH": str(tmp_path)})
    assert modules.stdout.startswith(str(tmp_path))
