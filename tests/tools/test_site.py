"""The site's parts: the lock file names only what is served, and links or copies stand where they belong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tools.assets import ASSETS
from tools.site import DEPENDS, PACKAGES, SiteError, lay_site, place, place_kernels, place_wheel, trimmed_lock

ASSET = {asset.name: asset for asset in ASSETS}


def upstream_lock() -> dict:
    """A lock file as Pyodide ships it, with one package that is not served."""
    packages = {}
    for name in (*PACKAGES, "scipy"):
        ours = ASSET.get(name) if name not in DEPENDS else None
        packages[name] = {
            "name": name,
            "file_name": Path(ours.path).name if ours else f"{name}-0.0.whl",
            "sha256": ours.sha256 if ours else "0" * 64,
            "version": "0.0",
            "depends": ["elsewhere"] if name in DEPENDS else [],
            "imports": [name],
        }
    return {"info": {"version": "0.27.7"}, "packages": packages}


def test_the_lock_names_only_what_is_served():
    lock = trimmed_lock(upstream_lock())
    assert sorted(lock["packages"]) == sorted(PACKAGES)
    for name, entry in lock["packages"].items():
        assert (entry["file_name"], entry["sha256"]) == (Path(ASSET[name].path).name, ASSET[name].sha256)
        assert set(entry["depends"]) <= set(PACKAGES)
    assert lock["packages"]["jinja2"]["version"] == "3.1.6"


def test_a_package_that_is_not_the_locked_file_is_refused():
    lock = upstream_lock()
    lock["packages"]["numpy"]["sha256"] = "1" * 64
    with pytest.raises(SiteError, match="numpy is not the file that pyodide-lock.json names"):
        trimmed_lock(lock)


@pytest.mark.parametrize("copy", [False, True])
def test_placing_twice_replaces_what_was_there(tmp_path, copy):
    source, target = tmp_path / "source", tmp_path / "deep" / "target"
    source.mkdir()
    (source / "file").write_text("one")
    place(source, target, copy=not copy)
    place(source, target, copy=copy)
    assert target.is_symlink() is not copy
    assert (target / "file").read_text() == "one"
    (source / "file").write_text("two")
    assert (target / "file").read_text() == ("one" if copy else "two")


def test_a_new_wheel_takes_the_place_of_the_old(tmp_path):
    for version in ("1", "2"):
        wheel = tmp_path / f"thing-{version}.whl"
        wheel.write_text(version)
        place_wheel(wheel, tmp_path / "wheels", copy=True)
    assert sorted(file.name for file in (tmp_path / "wheels").iterdir()) == ["thing-2.whl", "wheel.json"]
    assert json.loads((tmp_path / "wheels/wheel.json").read_text())["file"] == "thing-2.whl"


def test_a_site_without_a_wheel_says_what_to_run(tmp_path):
    with pytest.raises(SiteError, match="it holds 0 wheels; run 'make wheel'"):
        lay_site(tmp_path / "site", build=tmp_path)


def test_a_site_without_the_cpu_kernels_says_what_to_run(tmp_path):
    with pytest.raises(SiteError, match=r"relaxed-threads\.wasm is missing; run 'python -m tools.build_simd'"):
        place_kernels(tmp_path / "simd", tmp_path / "site/simd", copy=True)
