"""Measuring a loaded model and the device it is on: rates, what a token costs in counts, and each kernel by itself.

Runs wherever the engine runs, under CPython (``python -m bridge bench``) and in a page (tools/bench_webgpu.py).
"""
