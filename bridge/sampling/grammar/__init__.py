"""GBNF grammars: which texts they allow, and which tokens may come next.

A grammar is parsed into rules (``parser``), laid out as positions (``network``) and followed character by character
(``machine``); which tokens of a vocabulary it allows is found by walking their texts together (``masks``).
"""

from bridge.sampling.grammar.constraint import GrammarConstraint
from bridge.sampling.grammar.errors import AmbiguityError, GrammarError, GrammarRejection
from bridge.sampling.grammar.grammar import Grammar

__all__ = ["AmbiguityError", "Grammar", "GrammarConstraint", "GrammarError", "GrammarRejection"]
