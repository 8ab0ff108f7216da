"""The random bytes of a synthetic model's tensors, any range of them at once.

Making billions of random numbers takes longer than anything that is measured on them. So each type of block has a pool
of random ones, and a tensor is the pool read round and round from a place of its own. The pool's length is a prime
number of blocks: no row begins where another of the tensor begins before as many rows have gone by.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from bridge.quants.types import QuantType

POOL_NBYTES = 4 << 20
PIECE_NBYTES = 4 << 20
MATRIX, NORM, BIAS, EMBEDDING = "matrix", "norm", "bias", "embedding"


class Pools:
    """The pools of one model, made when first read; the same seed gives the same bytes."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._pools: dict[tuple[str, float], bytes] = {}

    def blocks(self, type_: QuantType, scale: float) -> bytes:
        """Random blocks whose values have a standard deviation of ``scale``."""
        key = type_.name, scale
        if key not in self._pools:
            import numpy as np

            from bridge.quants.random import random_blocks

            rng = np.random.default_rng((self.seed, type_.id))
            self._pools[key] = random_blocks(type_, prime_up_to(POOL_NBYTES // type_.type_size), rng, scale).tobytes()
        return self._pools[key]


class TensorBytes:
    """Tensor number ``index`` of a model. Matrices keep the size of what they multiply: deviation 1 / sqrt(n_in)."""

    def __init__(self, type_: QuantType, dimensions: tuple[int, ...], role: str, index: int, pools: Pools) -> None:
        self.nbytes = math.prod(dimensions) // type_.block_size * type_.type_size
        self._type, self._dimensions, self._role, self._index, self._pools = type_, dimensions, role, index, pools

    def read(self, offset: int, length: int) -> bytes:
        """``length`` bytes from ``offset`` on, which must be bytes of the tensor."""
        if self._role == NORM:
            return self._norm()[offset:offset + length]
        scale = 0.02 if self._role == BIAS else 1 / math.sqrt(self._dimensions[-1])
        pool = self._pools.blocks(self._type, scale)
        n_blocks = len(pool) // self._type.type_size
        at = (self._type.type_size * (self._index * 7919 % n_blocks) + offset) % len(pool)
        pieces = []
        while length:
            pieces.append(memoryview(pool)[at:at + length])
            length -= len(pieces[-1])
            at = 0
        return b"".join(pieces)

    def __iter__(self) -> Iterator[Any]:
        """All of it in pieces."""
        for start in range(0, self.nbytes, PIECE_NBYTES):
            yield self.read(start, min(PIECE_NBYTES, self.nbytes - start))

    def _norm(self) -> bytes:
        import numpy as np

        rng = np.random.default_rng((self._pools.seed, self._type.id, self._index))
        return (1 + 0.1 * rng.standard_normal(self._dimensions[0])).astype("<f4").tobytes()


def prime_up_to(n: int) -> int:
    """The largest prime number that is not above ``n``, which is at least 2."""
    while any(n % divisor == 0 for divisor in range(2, math.isqrt(n) + 1)):
        n -= 1
    return n
