"""Lays the folder that checks this project on a machine with a GPU and no network: ``make gpu-check-kit``.

    python -m tools.gpu_check_kit [--pythons 3.11,3.12,3.13] [OUT]      (default build/gpu-check)

    bridge/ kernels/ tools/ tests/    what tools/gpu_check.sh needs of the project, the tiny models included
    wheels/                           numpy, wgpu, pytest and their needs for x86-64 Linux
    lib/libvulkan.so.1                this machine's Vulkan loader, for one that has none (if there is one here)

Copy the folder and run ``tools/gpu_check.sh`` in it.
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "build" / "gpu-check"
PYTHONS = ("3.11", "3.12", "3.13")
PACKAGES = ("numpy", "wgpu", "pytest")
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
PROJECT = ("bridge", "kernels/wgsl", "tools", "tests/gpu", "tests/graph", "tests/golden.py", "tests/embeddings.py",
           "tests/data/models", "tests/data/golden", "tests/data/embeddings", "pyproject.toml", "LICENSE")
LOADER = "libvulkan.so.1"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pythons", default=",".join(PYTHONS), help="comma-separated (default: %(default)s)")
    parser.add_argument("out", nargs="?", type=Path, default=OUT)
    options = parser.parse_args(arguments)
    copy_project(options.out)
    status = download_wheels(options.out / "wheels", options.pythons.split(","))
    if status:
        return status
    loader = loader_here()
    if loader is None:
        print(f"{LOADER} is not on this machine; the kit works where one is installed", file=sys.stderr)
    else:
        (options.out / "lib").mkdir(exist_ok=True)
        shutil.copyfile(loader, options.out / "lib" / LOADER)
    size = sum(file.stat().st_size for file in options.out.rglob("*") if file.is_file())
    print(f"{options.out}: {size / 1e6:.0f} MB; copy it to the machine and run tools/gpu_check.sh there")
    return 0


def copy_project(out: Path) -> None:
    """The project's part, laid anew, so that nothing of an earlier state stays."""
    for folder in ("bridge", "kernels", "tools", "tests"):
        shutil.rmtree(out / folder, ignore_errors=True)
    for name in PROJECT:
        source, target = ROOT / name, out / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target)


def download_wheels(folder: Path, pythons: Sequence[str]) -> int:
    """pip's status."""
    shutil.rmtree(folder, ignore_errors=True)
    for python in pythons:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "--dest", str(folder),
                   "--constraint", str(ROOT / "requirements-dev.txt"), "--implementation", "cp",
                   "--python-version", python, *(f"--platform={name}" for name in PLATFORMS), *PACKAGES]
        status = subprocess.run(command).returncode
        if status:
            return status
    return 0


def loader_here() -> Path | None:
    """The file of this machine's Vulkan loader."""
    try:
        ctypes.CDLL(LOADER)
    except OSError:
        return None
    maps = Path("/proc/self/maps").read_text().splitlines()
    return next((Path(line.split()[-1]) for line in maps if "libvulkan.so" in line), None)


if __name__ == "__main__":
    sys.exit(main())
