"""The declarations against TypeScript: a page's use of them compiles, and what they forbid does not."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TYPESCRIPT = "typescript@5.9.3"
FOLDER = ROOT / "build" / "typescript"
OPTIONS = ["--noEmit", "--strict", "--target", "es2022", "--lib", "es2022,dom", "--module", "nodenext"]


@pytest.fixture(scope="module")
def tsc():
    """The compiler, installed once into build/."""
    compiler = FOLDER / "node_modules" / "typescript" / "bin" / "tsc"
    if not compiler.is_file():
        install = ["npm", "install", "--prefix", str(FOLDER), "--no-save", "--no-audit", "--no-fund", TYPESCRIPT]
        done = subprocess.run(install, capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, f"npm could not install {TYPESCRIPT}: {done.stderr[-500:]}"
    return compiler


def compile_errors(tsc, *files):
    done = subprocess.run(["node", str(tsc), *OPTIONS, *map(str, files)], capture_output=True, text=True, timeout=120)
    return done.stdout.splitlines()


def test_a_pages_use_compiles(tsc):
    assert compile_errors(tsc, ROOT / "tests" / "js" / "usage.ts") == []


def test_what_is_not_declared_does_not(tsc, tmp_path):
    wrong = tmp_path / "wrong.ts"
    source = (ROOT / "tests" / "js" / "usage.ts").read_text(encoding="utf-8")
    source = source.replace("../../web/", f"{ROOT.as_posix()}/web/").replace("bridge.listCache(", "bridge.listCaches(")
    wrong.write_text(source, encoding="utf-8")
    [error] = compile_errors(tsc, wrong)
    assert "Property 'listCaches' does not exist" in error
