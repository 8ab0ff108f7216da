"""Known logits, looked through on the live device: whether its best tokens can be trusted.

They are integers in float32, many of them equal, so there is one right answer. Two batches of a chain find the best,
the second without the token that the first has drawn; the workgroup memory that they begin with is whatever was left
there.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

from bridge.gpu.calls import CallBuilder, Operand, Pipeline
from bridge.gpu.device import Device, Dispatch
from bridge.gpu.selection import BUFFER_WORDS, CHAINS, READBACK_WORDS, Chain, selection_calls
from bridge.gpu.tuning import Tuning
from bridge.gpu.weights import place_weights
from bridge.graph.cache import CacheLayout
from bridge.graph.graph import LOGITS
from bridge.plan.batch import BatchLayout
from bridge.plan.plan import Plan, Result
from bridge.sampling.selection import DrawRule, Selection

N_VOCAB = 9001
K = 40
LOGIT_VALUES = [(i * 2654435761 % (1 << 32) >> 22) - 700.0 for i in range(N_VOCAB)]  # Knuth's multiplicative hash
BIAS, PENALTY = -1000.0, 10_000.0


async def selection_is_right(device: Device, tuning: Tuning, pipelines: Mapping[Pipeline, Any]) -> bool:
    """Whether the device finds and draws the tokens it should, with the pipelines compiled for a plan. Raises
    DeviceError."""
    best = sorted(range(N_VOCAB), key=lambda token: (-LOGIT_VALUES[token], token))
    also = tuple(sorted((best[0], 17)))
    selection = Selection(K, also, (0, 0), (BIAS, BIAS), rule=DrawRule(presence_penalty=PENALTY))
    left = [token for token in best if token not in also]
    handles: list[Any] = []
    try:
        words = await _run(device, tuning, pipelines, Chain([selection, selection]), handles)
    finally:
        device.free(handles)
    found = Chain([selection, selection]).read(words, N_VOCAB)
    if [selected.drawn for selected in found] != left[:2]:
        return False
    expected = [(left[:K], also), (left[1:K + 1], (*also, left[0]))]
    return all(selected.best_tokens(K, others) == (ids, _logits(ids), _logits(others).tolist())
               for selected, (ids, others) in zip(found, expected))


async def _run(device: Device, tuning: Tuning, pipelines: Mapping[Pipeline, Any], chain: Chain,
               handles: list[Any]) -> memoryview:
    plan = Plan((), (), {LOGITS: Result(0, N_VOCAB, frozenset())}, N_VOCAB, {}, ())
    calls = selection_calls(CallBuilder(
        plan, place_weights(plan, device.limits), tuning, cache=CacheLayout((), 1, 1, "f32", "f32"),
        max_workgroups=device.limits.max_compute_workgroups_per_dimension))

    def made(nbytes: int, uniform: bool = False) -> Any:
        handles.append(device.create_buffer(nbytes, uniform=uniform, label="self-test"))
        return handles[-1]

    logits = _logits(range(N_VOCAB)).tobytes()
    buffers = {Operand("slot", 0): made(-(-len(logits) // 16) * 16)}
    device.write_buffer(buffers[Operand("slot", 0)], 0, logits)
    buffers |= {Operand("selection", name): made(4 * n_words) for name, n_words in BUFFER_WORDS.items()}
    blocks = [BatchLayout(plan).pack([0], 0, [0], selection=packed) for packed in chain.packed()]
    params, dims = made(max(map(len, blocks))), made(16, uniform=True)
    device.write_buffer(dims, 0, calls[0].dims.ljust(16, b"\0"))  # the same for both
    dispatches = []
    for call in calls:
        [choice] = call.choices
        entries = [(dims, 0, 16), (params, 0, None), *((buffers[operand], 0, None) for operand in call.operands)]
        handles.append(device.create_bind_group(choice.pipeline.bindings, entries, f"self-test {call.name}"))
        dispatches.append(Dispatch(pipelines[choice.pipeline], handles[-1], (choice.columns, 1, 1)))
    handles.append(device.create_readback(buffers[Operand("selection", "record")], 4, 4, READBACK_WORDS[CHAINS[0]]))
    handles.append(device.create_program(dispatches, params, handles[-1]))
    await device.check()
    under_way = device.begin_chain(handles[-1], blocks, chain.n_words, chain.link())
    return (await device.end_chain(under_way)).cast("B").cast("I")


def _logits(tokens: Any) -> array:
    return array("f", (LOGIT_VALUES[token] for token in tokens))
