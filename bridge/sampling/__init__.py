"""From logits to the next token: penalties, truncation, temperature and the draw, equal to llama.cpp's samplers.

Knows nothing about models, tokenizers or devices. Importing it imports no numpy.
"""

from bridge.sampling.options import SamplingOptions
from bridge.sampling.sampler import Sampler, candidates

__all__ = ["Sampler", "SamplingOptions", "candidates"]
