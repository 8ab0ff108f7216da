"""The Python side of ``web/gguf.js``: open files, and the calls a page makes on them.

It runs in a worker that asks the page for every byte range, so files of any kind stay where they are. It imports nothing
of JavaScript's: what it needs from there is handed in, and under CPython tests hand in their own.
"""

from .host import ReaderHost
from .page_source import PageSource

__all__ = ["PageSource", "ReaderHost"]
