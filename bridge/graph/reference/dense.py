"""Operations on rows that know neither positions nor a cache: products, norms, activations, element by element."""

from __future__ import annotations

import numpy as np

F32 = np.float32


def _embed(state, batch, inputs, weights, attrs):
    return weights[0][batch.tokens] * F32(attrs["scale"])


def _matmul(state, batch, inputs, weights, attrs):
    product = inputs[0] @ weights[0].T
    return product + weights[1] if len(weights) > 1 else product


def _rms_norm(state, batch, inputs, weights, attrs):
    x = inputs[0].reshape(len(inputs[0]), -1, attrs["group"])
    mean = np.mean(np.square(x), axis=-1, keepdims=True, dtype=F32)
    return (x / np.sqrt(mean + F32(attrs["eps"])) * weights[0]).reshape(inputs[0].shape)


def _glu(state, batch, inputs, weights, attrs):
    return ACTIVATIONS[attrs["act"]](inputs[0]) * inputs[1]


def _silu(x):
    with np.errstate(over="ignore"):  # exp(-x) may be infinite: x / inf is the right 0
        return x / (1 + np.exp(-x))


def _gelu(x):
    # The tanh form (Hendrycks & Gimpel, arXiv 1606.08415), with sqrt(2/π).
    return F32(0.5) * x * (1 + np.tanh(F32(0.79788456080286535588) * x * (1 + F32(0.044715) * x * x)))


ACTIVATIONS = {"silu": _silu, "gelu": _gelu}

OPERATIONS = {
    "embed": _embed,
    "matmul": _matmul,
    "rms_norm": _rms_norm,
    "glu": _glu,
    "add": lambda state, batch, inputs, weights, attrs: inputs[0] + inputs[1],
    "scale": lambda state, batch, inputs, weights, attrs: inputs[0] * F32(attrs["scale"]),
    "softcap": lambda state, batch, inputs, weights, attrs: (
        F32(attrs["cap"]) * np.tanh(inputs[0] / F32(attrs["cap"]))),
    "select_outputs": lambda state, batch, inputs, weights, attrs: inputs[0][batch.outputs],
}
