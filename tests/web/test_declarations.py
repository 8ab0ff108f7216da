"""The declarations against TypeScript: a page's use of them compiles, and what they forbid does not."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMPILER = ROOT / "build" / "typescript" / "node_modules" / "typescript" / "bin" / "tsc"
OPTIONS = ["--noEmit", "--strict", "--target", "es2022", "--lib", "es2022,dom", "--module", "nodenext"]


def compile_errors(*files):
    assert COMPILER.is_file(), "the TypeScript compiler is not there: run 'make setup' first"
    done = subprocess.run(["node", str(COMPILER), *OPTIONS, *map(str, files)], capture_output=True, text=True, timeout=120)
    return done.stdout.splitlines()


def test_a_pages_use_compiles():
    assert compile_errors(ROOT / "tests" / "js" / "usage.ts") == []


def test_what_is_not_declared_does_not(tmp_path):
    wrong = tmp_path / "wrong.ts"
    source = (ROOT / "tests" / "js" / "usage.ts").read_text(encoding="utf-8")
    source = source.replace("../../web/", f"{ROOT.as_posix()}/web/").replace("bridge.listCache(", "bridge.listCaches(")
    wrong.write_text(source, encoding="utf-8")
    [error] = compile_errors(wrong)
    assert "Property 'listCaches' does not exist" in error
