"""Looking through the logits of one token on the device: the calls, what a batch says to them, and what they answer.

The kernels are kernels/wgsl/best_of_blocks.wgsl and best_tokens.wgsl; the latter says how the selection and the
record lie.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from bridge.errors import DeviceError
from bridge.gpu.calls import Call, CallBuilder, Choice, Operand, pack, quads
from bridge.gpu.device import Device, Link
from bridge.graph.graph import LOGITS, OUTPUTS
from bridge.plan.batch import HEADER_WORDS
from bridge.plan.plan import Plan, Step
from bridge.sampling.selection import Selected, Selection

MAX_SELECTED = 224
"""Most tokens in one record. The kernel has 256 bounds; close to that number they bound nothing any more."""
MAX_AHEAD = 8
"""Most tokens drawn before the host looks at them."""
MAX_NBYTES = 4 * (12 + 3 * MAX_SELECTED)
"""Of a selection in the parameter block."""
N_BLOCKS = 1024
RECORD_WORDS = 2 * MAX_SELECTED + MAX_AHEAD + 1
BUFFER_WORDS = {"best": N_BLOCKS, "record": RECORD_WORDS + MAX_AHEAD}  # behind the record: the tokens drawn so far
SELECTION = "selection"
CHAINS = ("chain 0", "chain 1")
READBACK_WORDS = {SELECTION: RECORD_WORDS, **dict.fromkeys(CHAINS, MAX_AHEAD * RECORD_WORDS)}
"""By the names of the readbacks of records: of one batch, and of chains, of which one may be read while another is
computed."""
_NONE = 0xFFFFFFFF
_HEADER = struct.Struct("<5I7f")
_OFF = -3.0e38  # a logarithm below all that occur; WGSL knows no infinity


def selection_step(plan: Plan) -> Step:
    """What stands for the step of the calls that look through the logits; it is in no plan."""
    logits = plan.results[LOGITS]
    return Step("select_tokens", (logits.slot,), None, (), {}, OUTPUTS, logits.width, "selection")


def selection_calls(b: CallBuilder) -> list[Call]:
    """The two calls after those that compute the logits."""
    logits = b.plan.results[LOGITS]
    dims = pack(logits.width, quads(logits.width))
    slot, best, record = Operand("slot", logits.slot), Operand("selection", "best"), Operand("selection", "record")
    workgroup = b.tuning.elementwise_workgroup
    first = b.pipeline("best_of_blocks.wgsl", "rw", WORKGROUP=workgroup, N_BLOCKS=N_BLOCKS)
    second = b.pipeline("best_tokens.wgsl", "rrw", WORKGROUP=b.tuning.selection_workgroup, N_BLOCKS=N_BLOCKS,
                        DRAWN=RECORD_WORDS, QUAD=4)
    return [
        Call("best of blocks", (Choice(1, -(-N_BLOCKS // workgroup), first),), dims, (slot, best), OUTPUTS, once=True),
        Call("best tokens", (Choice(1, 1, second),), dims, (slot, best, record), OUTPUTS, once=True),
    ]


def can_select(selection: Selection, n_vocab: int) -> bool:
    n = selection.k + len(selection.also)
    return 0 < selection.k and n <= min(MAX_SELECTED, n_vocab) and (
        all(0 <= token < n_vocab for token in selection.also))


def pack_selection(selection: Selection, n_drawn: int = 0, drawn_at: int | None = None) -> bytes:
    """What the parameter block says of a selection.

    ``n_drawn`` tokens that the batches before have drawn are left out of the best, too. The token drawn goes to the
    word ``drawn_at`` of the record; None: nothing is drawn.
    """
    rule, also = selection.rule, selection.also
    header = _HEADER.pack(
        selection.k, len(also), n_drawn, drawn_at or 0, int(drawn_at is not None), selection.uniform, rule.top_p,
        math.log(rule.min_p) if rule.min_p > 0 else _OFF, rule.temp, rule.penalty, rule.presence_penalty,
        rule.frequency_penalty)
    counts, biases = selection.counts or (0,) * len(also), selection.biases or (0.0,) * len(also)
    listed = (struct.pack("<IIf", token, count, max(bias, _OFF))
              for token, count, bias in zip(also, counts, biases, strict=True))
    return header + b"".join(listed)


def record_words(selection: Selection, n_drawn: int = 0) -> int:
    """Of the record but for the token drawn."""
    return 2 * selection.k + len(selection.also) + n_drawn


def read_record(words: memoryview, n_vocab: int, selection: Selection, before: Sequence[int] = (),
                drawn: int | None = None) -> Selected | None:
    """What a record (uint32) answers, or None where the logits themselves have to be looked at.

    ``before`` are the tokens drawn by the batches before that were left out of the best.
    """
    k, also = selection.k, (*selection.also, *before)
    if words[0] == _NONE:
        return None
    values = array("f", words[k:2 * k + len(also)].tobytes())
    return Selected(n_vocab, words[:k].tolist(), values[:k], dict(zip(also, values[k:])), drawn)


class Chain:
    """Selections of which each is for the token that the one before has drawn; their records are ``n_words`` long."""

    def __init__(self, selections: Sequence[Selection]) -> None:
        self._selections = selections
        # Those drawn are left out of the best where their logits change for that.
        self._n_drawn = [i if selection.rule.penalises else 0 for i, selection in enumerate(selections)]
        self._drawn_at = max(map(record_words, selections, self._n_drawn))
        self.n_words = self._drawn_at + 1

    def packed(self) -> list[bytes]:
        return [pack_selection(selection, n, self._drawn_at) for selection, n in zip(self._selections, self._n_drawn)]

    def link(self) -> Link:
        """From the token that a batch draws to that of the next batch."""
        return Link(4 * self._drawn_at, 4 * HEADER_WORDS)

    def read(self, words: memoryview, n_vocab: int) -> list[Selected]:
        """What the records answer, up to one that tells nothing."""
        found: list[Selected] = []
        drawn: list[int] = []
        for i, (selection, n) in enumerate(zip(self._selections, self._n_drawn)):
            record = words[i * self.n_words:(i + 1) * self.n_words]
            selected = read_record(record, n_vocab, selection, drawn[:n], record[self._drawn_at])
            if selected is None:
                break
            found.append(selected)
            drawn.append(record[self._drawn_at])
        return found


class Flight:
    """A chain that was submitted: see bridge.runtime.backend.Flight."""

    def __init__(self, device: Device, under_way: Any, chain: Chain, n_vocab: int) -> None:
        self._device, self._under_way, self._chain, self._n_vocab = device, under_way, chain, n_vocab
        self._has_landed = False

    async def land(self) -> list[Selected]:
        self._has_landed = True
        records = await self._device.end_chain(self._under_way)
        return self._chain.read(records.cast("B").cast("I"), self._n_vocab)

    async def settle(self) -> None:
        """Wait for a chain that nobody wants any more; whatever went wrong with it is told to others."""
        if not self._has_landed:
            with suppress(DeviceError):
                await self.land()
