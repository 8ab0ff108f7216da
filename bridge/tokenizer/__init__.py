"""Text to token ids and back: byte-level BPE, SentencePiece, WordPiece and unigram vocabularies, and chat templates.

Pure Python without packages, so that it is there as soon as a page's worker is. Knows nothing about models or devices.
"""

from bridge.tokenizer.stream import StreamDetokenizer
from bridge.tokenizer.tokenizer import Tokenizer

__all__ = ["StreamDetokenizer", "Tokenizer"]
