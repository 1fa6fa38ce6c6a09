"""A node with GPUs of any memory, and the size that a plan takes on it."""

import dataclasses

from labkit import node
from labkit.engine.plan import CONTEXT_BYTES, MEMORY_MARGIN

FREE_GB = (139, 79, 39, 22, 14.5, 7)


def show_gpu(monkeypatch, free_gb, gpus=1):
    """Makes the node show so many GPUs with so much free memory each."""
    here = dataclasses.replace(node.here(), gpus=tuple(node.Gpu(index, "NVIDIA H200") for index in range(gpus)))
    monkeypatch.setattr(node, "here", lambda: here)
    monkeypatch.setattr(node, "free_bytes", lambda gpus: free_gb * 1e9)


def size_taken(kind, free_gb):
    """Gives the name of the size that auto takes; what must fit does, and at the next larger size it would not."""
    plan = kind.sized("auto")
    name = plan.left_out.removesuffix(" instead").rpartition(": ")[2] or plan.size
    sizes = {"full": {}} | kind.merged("MIDDLE")
    assert vars(plan).items() >= sizes[name].items()
    room, names = (1 - MEMORY_MARGIN) * (free_gb * 1e9 - CONTEXT_BYTES), list(sizes)
    assert plan.most_needed_bytes() <= room
    larger = names[: names.index(name)][-1:]
    assert all(kind.full(**sizes[each]).most_needed_bytes() > room for each in larger)
    return name


def untried(plan, free_gb):
    """Gives the points that a worker with so much free memory does not try."""
    return [point for point in plan.points() if plan.needed_bytes(point) > free_gb * 1e9 - CONTEXT_BYTES]
