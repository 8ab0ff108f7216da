"""Models with random weights in the shapes of real ones: for benchmarks and tests without a download."""

from bridge.synth.model import write_model
from bridge.synth.quant_mix import quant_mix
from bridge.synth.shapes import Shape, shape

__all__ = ["Shape", "quant_mix", "shape", "write_model"]
