"""Find the bug: three benchmarks of one forward and backward. `SYMPTOMS` says what is wrong with each."""

from __future__ import annotations

SYMPTOMS = {
    "unsynchronised": "the clock stops when the work is launched, not when it is done",
    "first_inside": "the first iteration, which sets everything up, is one of those that count",
    "dropout_on": "the model is left in training mode: dropout draws random numbers in every forward",
}


def unsynchronised(bench, repeats):
    bench.model.eval()
    batch, seconds = bench.batch(), []
    for _ in range(3):
        bench.step(batch)
    for _ in range(repeats):
        bench.clear()
        begun = bench.clock()
        bench.step(batch)
        seconds.append(bench.clock() - begun)
    return seconds


def first_inside(bench, repeats):
    bench.model.eval()
    batch, seconds = bench.batch(), []
    for _ in range(repeats):
        bench.clear()
        with bench.watch(seconds):
            bench.step(batch)
    return seconds


def dropout_on(bench, repeats):
    batch, seconds = bench.batch(), []
    for _ in range(3):
        bench.step(batch)
    for _ in range(repeats):
        bench.clear()
        with bench.watch(seconds):
            bench.step(batch)
    return seconds
