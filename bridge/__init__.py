"""Run language models from GGUF files inside a web page, or under CPython, with our own kernels.

The rooms of this package and the direction of imports between them are described in docs/architecture.md.
Importing ``bridge`` is cheap: it pulls in no numpy, no JavaScript and no backend.
"""

__version__ = "0.1.0"
