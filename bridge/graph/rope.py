"""Rotary position embeddings as a table of cosines and sines that the host computes for each batch.

Computing them on the host in double precision keeps every scaling rule in one place, makes the kernels independent of
the context length, and avoids WGSL's ``cos``/``sin``, whose precision is unspecified outside [-π, π].

Sources: RoPE (Su et al., arXiv 2104.09864); YaRN (Peng et al., arXiv 2309.00071); the exact treatment of the factors
follows llama.cpp (``ggml_rope_yarn_corr_dims``, ``rope_yarn`` and the context set-up).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class RopeTable:
    """One way to rotate: ``n_rot`` columns of a head, in pairs.

    ``freq_scale`` is 1/factor of linear scaling or YaRN, ``ext_factor`` 1 switches YaRN's interpolation on,
    ``magnitude`` multiplies cosines and sines, ``factors_tensor`` names a tensor of n_rot/2 divisors (Llama 3, LongRoPE).
    """

    n_rot: int
    freq_base: float
    freq_scale: float = 1.0
    ext_factor: float = 0.0
    magnitude: float = 1.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    n_ctx_orig: int = 0
    factors_tensor: str | None = None

    def frequencies(self, factors: Sequence[float] | None = None) -> tuple[list[float], float]:
        """The angle per position of each pair, and the factor on cosines and sines."""
        half = self.n_rot // 2
        low, high = self._correction_range()
        angles, magnitude = [], self.magnitude
        if self.ext_factor:
            magnitude *= 1.0 + 0.1 * math.log(1.0 / self.freq_scale)
        for i in range(half):
            extrapolated = self.freq_base ** (-2.0 * i / self.n_rot) / (factors[i] if factors is not None else 1.0)
            angle = self.freq_scale * extrapolated
            if self.ext_factor:
                ramp = 1.0 - min(1.0, max(0.0, (i - low) / max(0.001, high - low)))
                mix = ramp * self.ext_factor
                angle = angle * (1.0 - mix) + extrapolated * mix
            angles.append(angle)
        return angles, magnitude

    def _correction_range(self) -> tuple[float, float]:
        if not self.ext_factor:
            return 0.0, 0.0

        def dim(rotations: float) -> float:
            return self.n_rot * math.log(self.n_ctx_orig / (rotations * 2 * math.pi)) / (2 * math.log(self.freq_base))

        return max(0.0, math.floor(dim(self.beta_fast))), min(self.n_rot - 1.0, math.ceil(dim(self.beta_slow)))


def rope_rows(angles: Sequence[float], magnitude: float, start: int, count: int) -> array:
    """float32 [count, len(angles), 2]: (cos, sin) of positions start … start + count - 1."""
    out = array("f")
    cos, sin = math.cos, math.sin
    for position in range(start, start + count):
        for angle in angles:
            theta = position * angle
            out.append(cos(theta) * magnitude)
            out.append(sin(theta) * magnitude)
    return out
