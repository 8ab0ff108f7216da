"""Lays the folder that a static server serves: ``python -m tools.site [--copy] [OUT]`` (default build/site).

    web/ worker/       the bridge and the demo, as they are in the repository
    pyodide/           the runtime, the packages the engine may load, and a lock file naming just those
    wheels/            the engine's wheel and wheel.json {file, sha256, size}
    simd/              the CPU kernels, a WebAssembly module for each kind of browser
    snapshot/          the start-up snapshot, made afterwards by tools/make_snapshot.mjs
    models/            what build/models holds

Links by default, so that an edit shows at the next reload; ``--copy`` makes plain files that can be uploaded anywhere.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

from tools.assets import ASSETS, BUILD, ROOT, sha256_of, write_atomically
from tools.build_simd import VARIANTS

SOURCE_FOLDERS = ("web", "worker")
CORE = ("pyodide.mjs", "pyodide.asm.js", "pyodide.asm.wasm", "python_stdlib.zip")
PACKAGES = ("numpy", "micropip", "packaging", "pyodide-http", "jinja2", "markupsafe")
# Pure packages that come from PyPI instead of Pyodide's own collection: their lock entries are written here.
DEPENDS = {"pyodide-http": [], "jinja2": ["markupsafe"], "markupsafe": []}


class SiteError(Exception):
    """A part of the site is missing or contradicts another; the message names it."""


def trimmed_lock(lock: dict) -> dict:
    """Pyodide's lock file reduced to the packages served here, so that a page asks for nothing from elsewhere.

    Raises SiteError when a package taken from Pyodide's collection is not the file that the lock file names.
    """
    assets = {asset.name: asset for asset in ASSETS}
    packages = {}
    for name in PACKAGES:
        asset = assets[name]
        file = Path(asset.path).name
        entry = lock["packages"][name]
        if name in DEPENDS:
            version = file.split("-")[1]
            entry = {**entry, "file_name": file, "sha256": asset.sha256, "version": version, "depends": DEPENDS[name]}
        elif (entry["file_name"], entry["sha256"]) != (file, asset.sha256):
            raise SiteError(f"the asset {name} is not the file that pyodide-lock.json names ({entry['file_name']})")
        packages[name] = entry
    return {"info": lock["info"], "packages": packages}


def place(source: Path, target: Path, copy: bool) -> None:
    """Makes ``target`` a link to ``source``, or a copy of it (folders whole)."""
    if target.is_symlink() or target.is_file():
        if not copy and target.is_symlink() and target.resolve() == source.resolve():
            return
        target.unlink()
    elif target.is_dir():
        shutil.rmtree(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    if not copy:
        target.symlink_to(os.path.relpath(source, target.parent.resolve()))
    elif source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy2(source, target)


def place_wheel(wheel: Path, folder: Path, copy: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.whl"):
        if old.name != wheel.name:
            old.unlink()
    place(wheel, folder / wheel.name, copy)
    manifest = {"file": wheel.name, "sha256": sha256_of(wheel), "size": wheel.stat().st_size}
    write_atomically(folder / "wheel.json", json.dumps(manifest, indent=1).encode())


def place_kernels(folder: Path, out: Path, copy: bool) -> None:
    for variant in VARIANTS:
        module = folder / f"{variant.name}.wasm"
        if not module.is_file():
            raise SiteError(f"build/simd/{module.name} is missing; run 'python -m tools.build_simd'")
        place(module, out / module.name, copy)


def lay_site(out: Path, build: Path = BUILD, copy: bool = False) -> None:
    """Lays every part but the snapshot under ``out``; raises SiteError for a part that is not built yet."""
    wheels = list((build / "wheels").glob("*.whl"))
    if len(wheels) != 1:
        raise SiteError(f"build/wheels must hold the engine's wheel alone, it holds {len(wheels)} wheels; run 'make wheel'")
    missing = [a.path for a in ASSETS if a.group == "pyodide" and not (build / a.path).is_file()]
    if missing:
        raise SiteError(f"{missing[0]} is missing; run 'python -m tools.assets'")
    out.mkdir(parents=True, exist_ok=True)
    for folder in SOURCE_FOLDERS:
        place(ROOT / folder, out / folder, copy)
    for file in CORE:
        place(build / "assets/pyodide" / file, out / "pyodide" / file, copy)
    for asset in ASSETS:
        if asset.path.startswith("assets/packages/"):
            place(build / asset.path, out / "pyodide" / Path(asset.path).name, copy)
        elif asset.path.startswith("models/") and (build / asset.path).is_file():
            place(build / asset.path, out / asset.path, copy)
    lock = json.loads((build / "assets/pyodide/pyodide-lock.json").read_text())
    write_atomically(out / "pyodide/pyodide-lock.json", json.dumps(trimmed_lock(lock)).encode())
    place_wheel(wheels[0], out / "wheels", copy)
    place_kernels(build / "simd", out / "simd", copy)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.site", description="Lay the folder that a static server serves.")
    parser.add_argument("out", nargs="?", type=Path, default=BUILD / "site", help="folder to lay (default: build/site)")
    parser.add_argument("--copy", action="store_true", help="plain files instead of links")
    options = parser.parse_args()
    try:
        lay_site(options.out, copy=options.copy)
    except SiteError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
