"""Operations on rows that know neither positions nor a cache: products, norms, activations, element by element."""

from __future__ import annotations

import numpy as np

F32 = np.float32


def _embed(state, batch, inputs, weights, attrs):
    rows = {"tokens": batch.tokens, "positions": batch.positions, "first": np.zeros_like(batch.tokens)}[attrs["of"]]
    return weights[0][rows] * F32(attrs["scale"])


def _matmul(state, batch, inputs, weights, attrs):
    product = inputs[0] @ weights[0].reshape(-1, weights[0].shape[-1]).T
    return product + weights[1] if len(weights) > 1 else product


def _rms_norm(state, batch, inputs, weights, attrs):
    x = inputs[0].reshape(len(inputs[0]), -1, attrs["group"])
    mean = np.mean(np.square(x), axis=-1, keepdims=True, dtype=F32)
    y = x / np.sqrt(mean + F32(attrs["eps"]))
    for operation, weight in zip((np.multiply, np.add), weights):
        y = operation(y, weight.reshape(-1, attrs["group"]))
    return y.reshape(inputs[0].shape)


def _layer_norm(state, batch, inputs, weights, attrs):
    x = inputs[0].reshape(len(inputs[0]), -1, attrs["group"])
    centred = (x - np.mean(x, axis=-1, keepdims=True, dtype=F32)).reshape(inputs[0].shape)
    return _rms_norm(state, batch, [centred], weights, attrs)


def _mul(state, batch, inputs, weights, attrs):
    a, b = inputs
    return (a.reshape(*b.shape, -1) * b[:, :, None]).reshape(a.shape)


def _dot(state, batch, inputs, weights, attrs):
    return (inputs[0] * inputs[1]).reshape(len(inputs[0]), -1, attrs["group"]).sum(axis=-1)


def _mix_runs(state, batch, inputs, weights, attrs):
    x, coefficients = (value.reshape(len(value), *shape) for value, shape in zip(
        inputs, ((attrs["n_in"], -1), (-1, attrs["n_in"]))))
    return np.einsum("tiw,toi->tow", x, coefficients, optimize=True).reshape(len(x), -1)


def _vector(operation):
    def apply(state, batch, inputs, weights, attrs):
        x = inputs[0].reshape(len(inputs[0]), -1, len(weights[0]))
        return operation(x, weights[0]).reshape(inputs[0].shape)

    return apply


def _columns(state, batch, inputs, weights, attrs):
    runs = inputs[0].reshape(len(inputs[0]), -1, attrs["group"])
    return runs[:, :, attrs["first"]:attrs["first"] + attrs["count"]].reshape(len(runs), -1)


def _concat(state, batch, inputs, weights, attrs):
    n, n_head = len(inputs[0]), attrs["n_head"]
    a, b = inputs[0].reshape(n, n_head, -1), inputs[1].reshape(n, 1 if attrs["shared"] else n_head, -1)
    return np.concatenate([a, np.broadcast_to(b, (n, n_head, b.shape[-1]))], axis=-1).reshape(n, -1)


def _activate(state, batch, inputs, weights, attrs):
    return ACTIVATIONS[attrs["act"]](inputs[0])


def _softmax(state, batch, inputs, weights, attrs):
    e = np.exp(inputs[0] - inputs[0].max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _glu(state, batch, inputs, weights, attrs):
    return ACTIVATIONS[attrs["act"]](inputs[0]) * inputs[1]


def _sigmoid(x):
    with np.errstate(over="ignore"):  # exp(-x) may be infinite: 1 / inf is the right 0
        return 1 / (1 + np.exp(-x))


def _silu(x):
    with np.errstate(over="ignore"):
        return x / (1 + np.exp(-x))


def _gelu(x):
    # The tanh form (Hendrycks & Gimpel, arXiv 1606.08415), with sqrt(2/π).
    return F32(0.5) * x * (1 + np.tanh(F32(0.79788456080286535588) * x * (1 + F32(0.044715) * x * x)))


def _softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _exp(x):
    with np.errstate(over="ignore"):
        return np.exp(x)


ACTIVATIONS = {
    "silu": _silu,
    "gelu": _gelu,
    "gelu_quick": lambda x: x * _sigmoid(F32(1.702) * x),
    "relu": lambda x: np.maximum(x, 0),
    "relu2": lambda x: np.square(np.maximum(x, 0)),
    "sigmoid": _sigmoid,
    "softplus": _softplus,
    "tanh": np.tanh,
    "exp": _exp,
    "sqrt": lambda x: np.sqrt(np.maximum(x, 0)),
}

OPERATIONS = {
    "embed": _embed,
    "matmul": _matmul,
    "rms_norm": _rms_norm,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "activate": _activate,
    "glu": _glu,
    "add": lambda state, batch, inputs, weights, attrs: inputs[0] + inputs[1],
    "mul": _mul,
    "mix_runs": _mix_runs,
    "dot": _dot,
    "add_vector": _vector(np.add),
    "mul_vector": _vector(np.multiply),
    "columns": _columns,
    "concat": _concat,
    "scale": lambda state, batch, inputs, weights, attrs: inputs[0] * F32(attrs["scale"]) + F32(attrs["offset"]),
    "clamp": lambda state, batch, inputs, weights, attrs: np.clip(inputs[0], F32(attrs["low"]), F32(attrs["high"])),
    "softcap": lambda state, batch, inputs, weights, attrs: (
        F32(attrs["cap"]) * np.tanh(inputs[0] / F32(attrs["cap"]))),
    "select_outputs": lambda state, batch, inputs, weights, attrs: inputs[0][batch.outputs],
}
