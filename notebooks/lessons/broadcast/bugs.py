"""Find the bug: three broadcasts that look like `staged`. `SYMPTOMS` says what each shows and which check names it."""

from __future__ import annotations

import time

SYMPTOMS = {
    "early_forward": "a forward does not wait for the tensor to arrive",
    "source_reused": "the source changes while copies are in flight",
    "unsynchronised": "the clock stops before the copies have arrived",
}


def early_forward(source, copies, chunks, lanes):
    lanes.host(0).copy(copies[0], source)
    for gpu in lanes.others(0):
        lanes.peer(0, gpu).copy(copies[gpu], copies[0])


def source_reused(source, copies, chunks, lanes):
    arrived = lanes.host(0).copy(copies[0], source)
    for gpu in lanes.others(0):
        lane = lanes.peer(0, gpu)
        lane.copy(copies[gpu], copies[0], after=arrived)
    source.zero_()


def unsynchronised(source, copies, chunks, lanes):
    start = time.perf_counter()
    arrived = lanes.host(0).copy(copies[0], source)
    for gpu in lanes.others(0):
        lane = lanes.peer(0, gpu)
        lane.copy(copies[gpu], copies[0], after=arrived)
    return time.perf_counter() - start
