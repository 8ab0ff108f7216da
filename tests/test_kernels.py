"""Kernel sources are found in the source tree and in an installed wheel, and nothing else is."""

from __future__ import annotations

import subprocess
import sys
import zipfile

import pytest
from bridge.errors import InputError
from bridge.kernels import kernel_text


@pytest.fixture(scope="module")
def wgsl_files(pytestconfig):
    folder = pytestconfig.rootpath / "kernels"
    return {file.relative_to(folder).as_posix(): file.read_text() for file in folder.rglob("*.wgsl")}


def test_every_kernel_of_the_source_tree_is_found(wgsl_files):
    assert wgsl_files
    assert {name: kernel_text(name) for name in wgsl_files} == wgsl_files


@pytest.mark.parametrize("path", ["wgsl/none.wgsl", "../pyproject.toml", "/etc/passwd", "", "wgsl"])
def test_other_paths_are_refused(path):
    with pytest.raises(InputError):
        kernel_text(path)


def test_an_installed_wheel_carries_the_kernels(wgsl_files, tmp_path, pytestconfig):
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", tmp_path, pytestconfig.rootpath], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    name, text = min(wgsl_files.items())
    program = "import sys, bridge.kernels; sys.stdout.write(bridge.kernels.kernel_text(sys.argv[1]))"
    # -S keeps this environment's own (editable) installation of the package out of the way.
    run = [sys.executable, "-S", "-c", program, name]
    found = subprocess.run(run, cwd=tmp_path / "installed", capture_output=True, text=True, check=True)
    assert found.stdout == text
