"""What a plan is: steps in order, each naming a kernel, the slots it reads and writes, and its weights.

A slot is scratch memory for one activation, [rows, width] float32, reused as soon as its value is dead; a step never
writes a slot it reads. Slots of TOKENS rows and of OUTPUTS rows are kept apart, so that a backend can size the first
by the micro-batch and the second by the number of logit rows it returns at once.

Kernels are the graph's operations after fusion (see bridge.graph.graph for their meaning), with these differences:

===============  ==========================================================================================
``matmul``       inputs (x) or (x, residual): the residual is added to the result; the rest says its ``Product``
``rms_norm``     inputs (x) or (x, residual): likewise; so with ``layer_norm``
``kv_write``     inputs (k, v); no output slot; stores them in the cache of ``layer`` at the batch's positions
``write_heads``  input (q, k and v side by side) -> q; stores k and v in the cache of ``layer``. On the way the heads of
                 q and k are normed (``q`` and ``k`` have ``eps``, or None; the weights [head_dim] of those that are)
                 and then rotated (``n_rot`` columns by ``table``; 0: none) in a common ``style``
``attention``    input (q): reads the cache only
===============  ==========================================================================================
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bridge.graph.graph import OUTPUTS, KvLayer, Node, Weight
from bridge.graph.rope import RopeTable


def constant(numbers: Sequence[float] | Sequence[int]) -> array:
    """Numbers of a step that kernels read from memory: float32 where they are floats, else unsigned integers."""
    return array("f" if isinstance(numbers[0], float) else "I", numbers)


@dataclass(frozen=True)
class Slot:
    rows: str
    width: int


@dataclass(frozen=True)
class Step:
    """``inputs`` and ``output`` are slots, ``input_widths`` the columns of the values in them.

    ``scratch`` is one more slot, for a matmul with a norm: a backend may put the normed x there in a step of its own; or
    for experts: their tokens, sorted by expert (bridge.plan.fusion.grouped_experts).
    """

    kernel: str
    inputs: tuple[int, ...]
    output: int | None
    weights: tuple[Weight, ...]
    attrs: Mapping[str, Any]
    rows: str
    width: int
    name: str
    input_widths: tuple[int, ...] = ()
    scratch: int | None = None


@dataclass(frozen=True)
class Product:
    """What a ``matmul`` step makes of x, [rows, n_in]: x @ matrix.T (+ bias) for each matrix, side by side.

    With ``norm``, [n_in], x is normed as in ``rms_norm`` first. With ``act`` the result is act(y) of these columns y or,
    if ``gated``, act(gate) * up of its halves, which come from two matrices of one type or from one.
    """

    matrices: tuple[Weight, ...]
    biases: tuple[Weight | None, ...]
    norm: Weight | None = None
    eps: float = 0.0
    act: str | None = None
    gated: bool = False

    @property
    def weights(self) -> tuple[Weight, ...]:
        return (*self.matrices, *(bias for bias in self.biases if bias), *([self.norm] if self.norm else []))


def product_of(step: Step | Node) -> Product:
    """The product of a matmul, fused or as the graph has it, with weights (matrix) or (matrix, bias)."""
    if "product" in step.attrs:
        return step.attrs["product"]
    matrix, *bias = step.weights
    return Product((matrix,), (bias[0] if bias else None,))


@dataclass(frozen=True)
class Result:
    """The slot that holds [OUTPUTS, width] after the last step, and which of the plan's steps it does not need."""

    slot: int
    width: int
    unused: frozenset[int]


@dataclass(frozen=True)
class Plan:
    """``results`` by the graph's names; token ids are below ``n_vocab``; ``rope_tables`` keep their order; ``states`` are the
    floats of each recurrent state."""

    steps: tuple[Step, ...]
    slots: tuple[Slot, ...]
    results: Mapping[str, Result]
    n_vocab: int
    rope_tables: Mapping[str, RopeTable]
    kv_layers: tuple[KvLayer, ...]
    states: tuple[int, ...] = ()

    def weights(self) -> dict[str, Weight]:
        return {w.name: w for step in self.steps for w in step.weights}

    @cached_property
    def n_token_ids(self) -> int:
        """Token ids below this one have a row in every matrix that is looked up by token."""
        return min((step.weights[0].shape[0] for step in self.steps if step.kernel == "embed"
                    and step.attrs["of"] == "tokens"), default=self.n_vocab)

    def without_outputs(self) -> tuple[Step, ...]:
        """The steps a batch needs that only fills the cache: everything that has one row per token."""
        return tuple(step for step in self.steps if step.rows != OUTPUTS)

    def steps_for(self, result: str) -> tuple[Step, ...]:
        """The steps that lead to one result."""
        return tuple(step for i, step in enumerate(self.steps) if i not in self.results[result].unused)
