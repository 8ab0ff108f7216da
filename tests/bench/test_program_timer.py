"""The timer on a device whose dispatches take known times."""

import asyncio

import pytest

from bridge.bench.program_timer import MAX_DISPATCHES, TARGET_SECONDS, Deadline, ProgramTimer
from bridge.gpu.device import AdapterInfo, Dispatch


class ScriptedDevice:
    """A dispatch's pipeline is the seconds it takes; a submission takes ``overhead`` more, the first one much more."""

    info = AdapterInfo()

    def __init__(self, overhead=0.3):
        self.now, self.overhead, self.runs, self.live = 0.0, overhead, [], 0

    def create_buffer(self, size, **options):
        self.live += 1

    def create_readback(self, buffer, row_nbytes, row_stride, max_rows):
        self.live += 1

    def create_program(self, dispatches, params, readback):
        self.live += 1
        return list(dispatches)

    def free(self, handles):
        self.live -= len(handles)

    async def run(self, program, params, n_rows):
        assert not any(sum(dispatch.cost) for dispatch in program)
        self.now += self.overhead + sum(dispatch.pipeline for dispatch in program) + (5.0 if not self.runs else 0.0)
        self.runs.append(len(program))


def seconds(device, dispatches, host=True):
    timer = ProgramTimer(device, (lambda: device.now) if host else None)
    dispatches = [Dispatch(each, None, (1, 1, 1), (1e9, 0.0)) for each in dispatches]
    found = asyncio.run(timer.seconds(dispatches, "params", b"block"))
    timer.close()
    assert device.live == 0
    return found


@pytest.mark.parametrize("each", [3e-5, 2e-3, 0.1, 20.0])
def test_the_time_of_a_dispatch_without_that_of_a_submission(each):
    device = ScriptedDevice()
    assert seconds(device, [each]) == pytest.approx(each)
    assert max(device.runs) * each >= min(TARGET_SECONDS, MAX_DISPATCHES * each)
    assert sum(device.runs) * each < 20 * TARGET_SECONDS + 10 * each


class DeviceWithAClock(ScriptedDevice):
    async def pass_seconds(self, program, params):
        self.runs.append(len(program))
        return sum(dispatch.pipeline for dispatch in program) * (3 if len(self.runs) == 1 else 1)


class DeviceThatCannotTell(ScriptedDevice):
    async def pass_seconds(self, program, params):
        return None


def test_the_devices_own_clock_is_taken_where_there_is_one():
    device = DeviceWithAClock(overhead=100.0)
    assert seconds(device, [2e-3], host=False) == pytest.approx(2e-3) and device.now == 0.0
    assert max(device.runs) * 2e-3 < TARGET_SECONDS


def test_else_the_hosts(monkeypatch):
    device = DeviceThatCannotTell()
    monkeypatch.setattr("time.perf_counter", lambda: device.now)
    assert seconds(device, [2e-3], host=False) == pytest.approx(2e-3) and device.now > 0.0


@pytest.mark.parametrize("each", [1e-4, 0.1])
def test_several_dispatches_take_turns(each):
    assert seconds(ScriptedDevice(), [each, 3 * each]) == pytest.approx(2 * each, rel=0.002)
    assert seconds(ScriptedDevice(), [each] * 30) == pytest.approx(each)


def test_what_takes_no_time_ends_with_the_longest_program():
    device = ScriptedDevice()
    assert 0 < seconds(device, [0.0]) <= 1e-9
    assert max(device.runs) == MAX_DISPATCHES


def test_deadlines():
    now = [10.0]
    deadline = Deadline(5, lambda: now[0])
    assert deadline.left == 5 and not deadline.is_over
    now[0] = 15.0
    assert deadline.is_over
    assert not Deadline(None).is_over
