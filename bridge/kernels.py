"""Finds kernel sources, which lie beside the package in the source tree and inside it once it is installed.

Knows nothing about what the kernels compute; the backends read their text and template it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path, PurePosixPath

from bridge.errors import InputError

_PACKAGE = Path(__file__).resolve().parent
_PLACES = (_PACKAGE / "_kernels", _PACKAGE.parent / "kernels")  # wheel, source tree


@cache
def kernel_text(path: str) -> str:
    """The text of one kernel source, such as ``kernel_text("wgsl/matmul.wgsl")``.

    Raises InputError for a path that leaves the kernel folder or names no file there.
    """
    parts = PurePosixPath(path).parts
    if not parts or PurePosixPath(path).is_absolute() or ".." in parts:
        raise InputError(f"a kernel is named by a relative path inside the kernel folder, got {path!r}")
    for place in _PLACES:
        file = place.joinpath(*parts)
        if file.is_file():
            return file.read_text(encoding="utf-8")
    raise InputError(f"there is no kernel {path!r}; the package is incomplete or the name is wrong")
