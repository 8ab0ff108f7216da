"""Runs inside Pyodide while the start-up snapshot is made: imports the engine, and nothing that cannot be in a snapshot.

A memory snapshot cannot hold numpy (compiled code) or live JavaScript objects, so every module of ``bridge`` is tried
while the packages below look absent; those that need one of them at import time are left for later.
tools/make_snapshot.mjs executes this file and calls its functions.
"""

import gc
import importlib
import importlib.abc
import json
import pkgutil
import sys
import warnings

NOT_IN_A_SNAPSHOT = frozenset({"numpy", "jinja2", "markupsafe", "wgpu", "wasmtime", "starlette", "uvicorn", "gguf"})
COMMAND_LINE = frozenset({"bridge.__main__", "bridge.bench", "bridge.cli", "bridge.commands", "bridge.serve"})
"""Of no use in a page, but for the benchmark's own (tools/bench_webgpu.py), which reads it from the wheel."""
REQUIRED = ("bridge.host",)  # without it the snapshot would save nothing


class _Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] in NOT_IN_A_SNAPSHOT:
            raise ModuleNotFoundError(f"{fullname} is kept out of the snapshot", name=fullname)
        return None


def import_all(package: str) -> dict[str, str]:
    """Imports ``package`` and every module below it; returns those left out, each with the reason."""
    try:
        module = importlib.import_module(package)
    except ImportError as error:
        return {package: str(_root_cause(error))}
    left_out = {}
    for found in pkgutil.iter_modules(getattr(module, "__path__", []), package + "."):
        if found.name not in COMMAND_LINE:
            left_out |= import_all(found.name)
    return left_out


def _root_cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def standard_library_in_use() -> str:
    """JSON list of the standard library modules that are loaded now."""
    return json.dumps(sorted(name for name in sys.modules if name.partition(".")[0] in sys.stdlib_module_names))


def prepare(standard_library: str) -> str:
    """Imports the given standard library modules (JSON list) and the engine; returns JSON ``{imported, left_out}``."""
    absent = _Absent()
    sys.meta_path.insert(0, absent)
    try:
        with warnings.catch_warnings(action="ignore"):
            for name in json.loads(standard_library):
                importlib.import_module(name)
        left_out = import_all("bridge")
    finally:
        sys.meta_path.remove(absent)
    for name in REQUIRED:
        if name not in sys.modules:
            raise ImportError(f"{name} must be in the snapshot: {left_out.get(name, 'there is no such module')}")
    importlib.invalidate_caches()
    gc.collect()
    return json.dumps({"imported": sorted(m for m in sys.modules if m.startswith("bridge")), "left_out": left_out})
