"""Find the bug: three broadcasts that look right. `SYMPTOMS` says what each shows and which check names it."""

from __future__ import annotations

import time

SYMPTOMS = {
    "early_forward": "a forward does not wait for its chunk to arrive",
    "source_reused": "the source changes while copies are in flight",
    "unsynchronised": "the clock stops before the copies have arrived",
}


def early_forward(source, copies, chunks, lanes):
    for part in lanes.parts(len(source), chunks):
        lanes.host(0).copy(copies[0][part], source[part])
        for gpu in lanes.others(0):
            lanes.peer(0, gpu).copy(copies[gpu][part], copies[0][part])


def source_reused(source, copies, chunks, lanes):
    for part in lanes.parts(len(source), chunks):
        arrived = lanes.host(0).copy(copies[0][part], source[part])
        for gpu in lanes.others(0):
            lanes.peer(0, gpu).copy(copies[gpu][part], copies[0][part], after=arrived)
    source.zero_()


def unsynchronised(source, copies, chunks, lanes):
    start = time.perf_counter()
    for part in lanes.parts(len(source), chunks):
        arrived = lanes.host(0).copy(copies[0][part], source[part])
        for gpu in lanes.others(0):
            lanes.peer(0, gpu).copy(copies[gpu][part], copies[0][part], after=arrived)
    return time.perf_counter() - start
