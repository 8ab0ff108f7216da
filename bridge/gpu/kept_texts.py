"""Short texts that are kept on this machine from one run to the next, in the user's folder for caches."""

from __future__ import annotations

import os
import sys
from pathlib import Path

MAX_BYTES = 4096


def folder() -> Path:
    """$BRIDGE_CACHE_DIR, or where the system wants caches: $XDG_CACHE_HOME, %LOCALAPPDATA% or in the user's home."""
    if chosen := os.environ.get("BRIDGE_CACHE_DIR"):
        return Path(chosen)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "llama-webgpu-bridge"
    base = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "llama-webgpu-bridge"


def recall(key: str) -> str | None:
    """The text kept under a key of letters and digits; None where there is none that can be read."""
    try:
        with (folder() / f"{key}.json").open("rb") as file:
            return file.read(MAX_BYTES).decode()
    except (OSError, ValueError, RuntimeError):  # RuntimeError: a user without a home
        return None


def keep(key: str, text: str) -> None:
    """Keep a text, where the folder can be written."""
    try:
        path = folder() / f"{key}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_suffix(f".{os.getpid()}")
        written.write_text(text)
        written.replace(path)
    except (OSError, RuntimeError):
        return
