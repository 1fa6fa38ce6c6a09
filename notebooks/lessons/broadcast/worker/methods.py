"""The broadcasts, each as short as the idea: `source` in host memory, `copies[g]` on GPU g, `lanes` between them.

Every function hands its copies to lanes and returns; the caller waits. `source` and each copy hold the same number of
elements; `chunks` is the number of pieces.
"""

from __future__ import annotations


def direct(source, copies, chunks, lanes):
    """Each GPU pulls the whole tensor from the host."""
    for gpu, copy in enumerate(copies):
        lanes.host(gpu).copy(copy, source)


def staged(source, copies, chunks, lanes):
    """GPU 0 pulls the tensor from the host, then hands it to each other GPU."""
    arrived = lanes.host(0).copy(copies[0], source)
    for gpu in lanes.others(0):
        lanes.peer(0, gpu).copy(copies[gpu], copies[0], after=arrived)


def pipelined(source, copies, chunks, lanes):
    """GPU 0 receives chunk k+1 from the host while it hands chunk k to the others."""
    for part in lanes.parts(len(source), chunks):
        arrived = lanes.host(0).copy(copies[0][part], source[part])
        for gpu in lanes.others(0):
            lanes.peer(0, gpu).copy(copies[gpu][part], copies[0][part], after=arrived)


def scatter_all_gather(source, copies, chunks, lanes):
    """Each GPU pulls its own share over its own host link, and hands each chunk of it to all others."""
    for parts in _rounds(source, copies, chunks, lanes):
        for gpu, part in enumerate(parts):
            arrived = lanes.host(gpu).copy(copies[gpu][part], source[part])
            for other in lanes.others(gpu):
                lanes.peer(gpu, other).copy(copies[other][part], copies[gpu][part], after=arrived)


def links(source, copies, chunks, lanes):
    """Each GPU pulls only its own share, all simultaneously: the yardstick. (No broadcast.)"""
    for parts in _rounds(source, copies, chunks, lanes):
        for gpu, part in enumerate(parts):
            lanes.host(gpu).copy(copies[gpu][part], source[part])


def _rounds(source, copies, chunks, lanes):
    """Yield each GPU's chunks of its own share round by round, so that every host link starts immediately."""
    share = len(source) // len(copies)
    return zip(*(lanes.parts(share, chunks, first=gpu * share) for gpu in range(len(copies))), strict=True)
