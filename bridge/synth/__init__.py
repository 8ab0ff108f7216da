"""Models with random weights in the shapes of real ones: for benchmarks and tests without a download."""

from bridge.synth.model import PREFIX, SynthSource, open_synth, write_model
from bridge.synth.quant_mix import quant_mix
from bridge.synth.shapes import Shape, shape

__all__ = ["PREFIX", "Shape", "SynthSource", "open_synth", "quant_mix", "shape", "write_model"]
