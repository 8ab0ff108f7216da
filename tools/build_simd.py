"""Compiles the CPU kernels, ``kernels/simd/*.c``, to WebAssembly: ``python -m tools.build_simd [OUT]`` (default
build/simd).

The compiler is clang out of the ``ziglang`` package, so nothing but pip is needed. One file per variant:

    relaxed-threads.wasm    relaxed SIMD and shared memory: what a cross-origin isolated Chromium page runs
    simd-threads.wasm       for browsers without relaxed SIMD
    relaxed.wasm simd.wasm  one thread, for pages without SharedArrayBuffer
    relaxed64-threads.wasm  64-bit addresses, for models that do not fit 4 GiB

A variant is made again only when a source, this file or the compiler's version changed.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bridge.simd.program import EDITION

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "kernels" / "simd"
OUT = ROOT / "build" / "simd"
PAGE = 1 << 16
STACK = 1 << 18  # of the first thread; the others get theirs from the memory plan (bridge/simd/memory.py)


@dataclass(frozen=True)
class Variant:
    """``relaxed``: relaxed SIMD; ``threads``: shared memory and atomics; ``bits``: of an address."""

    name: str
    relaxed: bool
    threads: bool
    bits: int = 32

    @property
    def target(self) -> str:
        return f"wasm{self.bits}-freestanding"

    @property
    def cpu(self) -> str:
        features = ["generic", "simd128", "bulk_memory", "mutable_globals", "sign_ext", "nontrapping_fptoint"]
        if self.relaxed:
            features.append("relaxed_simd")
        if self.threads:
            features.append("atomics")
        return "+".join(features)

    @property
    def max_memory(self) -> int:
        """Bytes: all that 32 bits can address, else what browsers allow."""
        return 65536 * PAGE if self.bits == 32 else 262144 * PAGE


VARIANTS = (
    Variant("relaxed-threads", relaxed=True, threads=True),
    Variant("simd-threads", relaxed=False, threads=True),
    Variant("relaxed", relaxed=True, threads=False),
    Variant("simd", relaxed=False, threads=False),
    Variant("relaxed64-threads", relaxed=True, threads=True, bits=64),
)


def command(variant: Variant, out: Path) -> list[str]:
    """The compiler's call for one variant."""
    flags = ["-std=c11", "-O3", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-fno-strict-aliasing",
             "-ffp-contract=off", f"-DPROGRAM_EDITION={EDITION}u"]
    return [
        sys.executable, "-m", "ziglang", "build-exe", "-cflags", *flags, "--", *map(str, sorted(SOURCES.glob("*.c"))),
        "-target", variant.target, f"-mcpu={variant.cpu}", "-O", "ReleaseFast", "-fstrip",
        "-fno-entry", "--import-memory", *(["--shared-memory"] if variant.threads else []),
        f"--max-memory={variant.max_memory}", "--stack", str(STACK),
        "--export=__stack_pointer", "--export=__heap_base", f"-femit-bin={out}",
    ]


def fingerprint(variant: Variant) -> str:
    """Of everything that decides what the compiler gives."""
    digest = hashlib.sha256(" ".join(command(variant, Path("out"))[1:]).encode())
    digest.update(importlib.metadata.version("ziglang").encode())
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def build(variant: Variant, folder: Path) -> Path:
    """Compile one variant into ``folder`` unless it is there already; raises CalledProcessError with the messages
    shown."""
    out, stamp = folder / f"{variant.name}.wasm", folder / f".{variant.name}"
    wanted = fingerprint(variant)
    if out.is_file() and stamp.is_file() and stamp.read_text() == wanted:
        return out
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{variant.name}.partial.wasm"
    # One cache for all: compilers running side by side share what they compile of their own runtime.
    cache = str(folder / ".cache")
    environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
    subprocess.run(command(variant, partial), check=True, env=environment)
    partial.replace(out)
    stamp.write_text(wanted)
    return out


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.build_simd",
                                     description="Compile the CPU kernels to WebAssembly.")
    parser.add_argument("out", nargs="?", type=Path, default=OUT,
                        help="folder for the .wasm files (default: build/simd)")
    parser.add_argument("--only", metavar="NAME", choices=[v.name for v in VARIANTS], help="one variant")
    options = parser.parse_args()
    wanted = [v for v in VARIANTS if options.only in (None, v.name)]
    try:
        with ThreadPoolExecutor(max_workers=2) as pool:
            list(pool.map(lambda variant: build(variant, options.out), wanted))
    except subprocess.CalledProcessError:
        print("the CPU kernels could not be compiled", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
