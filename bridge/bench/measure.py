"""All figures of one loaded model, as plain values ready for JSON; what each means is in docs/performance.md."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bridge.bench.device_speed import DeviceSpeed, measure_device
from bridge.bench.kernels import Kernel, time_kernels
from bridge.bench.program_timer import Deadline, ProgramTimer
from bridge.bench.rates import count_tokens, measure_rates, median, prompt_of
from bridge.gpu.costs import Cost

COUNTED_TOKENS = 8
RATES_SHARE = 0.5
"""Of the seconds there are, for prompts and decoding; the rest is for counting and kernels."""

Report = Callable[[str], None]


@dataclass(frozen=True)
class BenchOptions:
    """``prompts``: lengths in tokens; the figures of the first are also told by themselves. ``seconds``: after so many
    nothing new is begun (None: no end). ``cpu``: kernels in processor time, which a busy machine does not stretch."""

    prompts: tuple[int, ...] = (64,)
    n_predict: int = 32
    repeat: int = 3
    seconds: float | None = None
    cpu: bool = False


async def measure(model: Any, load_ms: float, options: BenchOptions, device: Any = None,
                  report: Report = lambda line: None) -> dict[str, Any]:
    """The figures; ``device`` is what a model on WebGPU computes on. ``report`` gets lines for people as they come."""
    deadline = Deadline(options.seconds)
    figures: dict[str, Any] = {
        "model_bytes": model.nbytes, "architecture": model.architecture, "backend": model.backend_name,
        "adapter": dict(model.adapter), "python": platform.python_version(), "n_ctx": model.n_ctx,
        "n_ubatch": model.n_ubatch, "kv_type": model.kv_type, "prompt_tokens": options.prompts[0],
        "n_predict": options.n_predict, "load_ms": round(load_ms, 3),
    }
    for_rates = Deadline(None if options.seconds is None else RATES_SHARE * options.seconds)
    figures |= await _rates(model, options, load_ms, for_rates, report)
    if device is not None:
        figures |= await _on_device(model, device, options, figures, deadline, report)
    return figures


async def _rates(model: Any, options: BenchOptions, load_ms: float, deadline: Deadline,
                 report: Report) -> dict[str, Any]:
    """Short prompts first: they tell how many tokens of the others there is time for."""
    found: dict[int, dict[str, Any]] = {}
    for wanted in sorted(options.prompts):
        rates = [known["tokens_per_second"] for known in found.values()]
        n_prompt = _affordable(wanted, rates, deadline, model.n_ubatch)
        runs = await measure_rates(model, n_prompt, options.n_predict, options.repeat, load_ms, deadline)
        found[wanted] = {"tokens": n_prompt, "tokens_per_second": median(runs, "prompt_tokens_per_second"),
                         "decode_tokens_per_second": median(runs, "decode_tokens_per_second"), "runs": runs}
        report("prompt of {tokens}: {tokens_per_second} tokens/s, decode {decode_tokens_per_second} tokens/s"
               .format(**found[wanted]))
    first = found[options.prompts[0]]
    return {"prompt_tokens": first["tokens"], "prompt_tokens_per_second": first["tokens_per_second"],
            "decode_tokens_per_second": first["decode_tokens_per_second"], "runs": first["runs"],
            "prompts": [{key: value for key, value in found[n].items() if key != "runs"} for n in options.prompts]}


def _affordable(wanted: int, rates: list[float | None], deadline: Deadline, n_ubatch: int) -> int:
    """The tokens of a prompt that half of the time left is enough for, in whole batches, at the last rate."""
    known = [rate for rate in rates if rate]
    if not known or deadline.left == float("inf"):
        return wanted
    return min(wanted, max(n_ubatch, int(deadline.left / 2 * known[-1]) // n_ubatch * n_ubatch))


async def _on_device(model: Any, device: Any, options: BenchOptions, figures: Mapping[str, Any], deadline: Deadline,
                     report: Report) -> dict[str, Any]:
    n_counted = COUNTED_TOKENS
    if options.seconds is not None:
        n_counted = int(min(n_counted, max(1, deadline.left / 8 * (figures["decode_tokens_per_second"] or 0))))
    found: dict[str, Any] = {"per_token": await count_tokens(model, device, n_counted)}
    found["products"] = [{"file": shape.file, **asdict(shape)} for shape in model.session.tuning.matmul]
    report("per token: " + ", ".join(f"{value:g} {name}" for name, value in found["per_token"].items()))
    timer = ProgramTimer(device, time.process_time if options.cpu else None)
    try:
        speed = await measure_device(device, timer)
        found["device"] = speed.figures()
        report("device: copies {copy_gb_per_second} GB/s, computes {peak_f32_gflops} GFLOP/s, "
               "a dispatch takes {dispatch_microseconds} us".format(**found["device"]))
        after_prompt = min(figures["prompt_tokens"], model.n_ctx - 1)
        batches = {"decode": (1, after_prompt), "prompt": (model.n_ubatch, max(after_prompt - model.n_ubatch, 0))}
        for name, (n_tokens, start) in batches.items():
            report(f"kernels of {name}, {n_tokens} tokens at position {start}")
            kernels = await time_kernels(model.session, timer, prompt_of(model, n_tokens), start, deadline,
                                         lambda kernel: report(_line(kernel, speed)))
            found[f"{name}_kernels"] = {"tokens": n_tokens, "position": start, **_summary(kernels, speed)}
    finally:
        timer.close()
        model.forget()
    found |= _reached(found, figures, speed)
    report(", ".join(f"{key}: {value}" for key, value in found["reached"].items()))
    return found


def _summary(kernels: list[Kernel], speed: DeviceSpeed) -> dict[str, Any]:
    cost = sum((kernel.cost for kernel in kernels), Cost(0, 0))
    times = [kernel.total_seconds for kernel in kernels if kernel.total_seconds is not None]
    summary = {"bytes": cost.nbytes, "flop": cost.flop, "complete": len(times) == len(kernels),
               "sum_ms": round(1e3 * sum(times), 4)}
    if summary["complete"]:
        summary |= {"of_copy": round(cost.nbytes / sum(times) / speed.copy, 3),
                    "of_peak": round(cost.flop / sum(times) / speed.peak, 3)}
    return {**summary, "kernels": [_row(kernel, speed) for kernel in kernels]}


def _row(kernel: Kernel, speed: DeviceSpeed) -> dict[str, Any]:
    row: dict[str, Any] = {"kernel": kernel.label, "shape": kernel.shape, "calls": len(kernel.dispatches),
                           "bytes": kernel.cost.nbytes, "flop": kernel.cost.flop}
    if kernel.total_seconds is not None:
        moved, computed = kernel.cost.nbytes / kernel.total_seconds, kernel.cost.flop / kernel.total_seconds
        row |= {"microseconds": round(1e6 * kernel.seconds, 2),
                "gb_per_second": _giga(moved), "gflops": _giga(computed),
                "of_copy": round(moved / speed.copy, 3), "of_peak": round(computed / speed.peak, 3)}
    return row


def _line(kernel: Kernel, speed: DeviceSpeed) -> str:
    row = _row(kernel, speed)
    return ("  {kernel:44} {shape:22} {calls:4} x {microseconds:10.1f} us {gb_per_second:9.2f} GB/s {of_copy:5.0%} "
            "of copy {gflops:9.2f} GFLOP/s {of_peak:5.0%} of peak").format(**row)


def _reached(found: Mapping[str, Any], figures: Mapping[str, Any], speed: DeviceSpeed) -> dict[str, Any]:
    """Bytes moved in decoding against copying, arithmetic of prompts against the peak: end to end, and in kernels."""
    decode, prompt = figures["decode_tokens_per_second"], figures["prompt_tokens_per_second"]
    token, batch = found["decode_kernels"], found["prompt_kernels"]
    reached = {
        "decode_of_copy": decode and round(token["bytes"] * decode / speed.copy, 3),
        "decode_kernels_of_copy": token.get("of_copy"),
        "prompt_of_peak": prompt and round(batch["flop"] / batch["tokens"] * prompt / speed.peak, 3),
        "prompt_kernels_of_peak": batch.get("of_peak"),
    }
    return {"reached": reached}


def _giga(value: float) -> float:
    return round(value / 1e9, 3)
