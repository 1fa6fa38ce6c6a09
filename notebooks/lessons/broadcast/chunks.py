"""What is wrong with the chunks of a student's broadcast: their number, their size, and what waits for what."""

from __future__ import annotations

import pandas as pd

from lessons.broadcast.graph import Copy, Graph

TOLERANCE = 1.1  # a longest chain of copies up to this times the least one is as good


def elements(copy: Copy) -> str:
    return f"elements {copy.first} to {copy.end - 1}"


def chunks_fault(graph: Graph, rows: pd.DataFrame, chunks: int, pieces: int) -> str | None:
    """The tensor comes from the host in as many pieces as `chunks` asks for, whatever it is; no copy is larger."""
    fewer, share = int(rows["fewer_chunks"].iloc[0]), pieces // chunks
    pulls = sum(copy.origin == "host" for copy in graph.copies)
    for asked, counted in ((chunks, pulls), (fewer, int(rows["fewer_pulls"].iloc[0]))):
        if counted != asked * share:
            return (
                f"with chunks={asked} the tensor comes from the host in {counted} pieces, not in {asked * share}: cut "
                f"{'it' if share == 1 else 'every share'} with `lanes.parts(…, chunks)`"
            )
    largest = max(graph.copies, key=lambda copy: copy.elements, default=None)
    if largest and largest.elements > graph.chunk_elements:
        return f"one copy moves {elements(largest)}, which is larger than a chunk: hand on chunk by chunk"
    return None


def beside(graph: Graph, ideal: Graph, chunks: int) -> str:
    """Say how long the longest chain is and how many forwards can overlap, beside the reference solution's."""
    measured = len(ideal.copies) > 0
    least = ideal.chunk_times if measured else chunks + 1
    many = f" (of the reference solution's, {ideal.overlapped_forwards})" if measured else ""
    return (
        f"its longest chain of waiting copies takes {graph.chunk_times:.4g} chunk times, the reference solution's "
        f"{least:.4g}; {graph.overlapped_forwards} of {len(graph.forwards)} forwards can run while something comes "
        f"from the host{many}"
    )


def overlap_fault(graph: Graph, ideal: Graph, chunks: int) -> str:
    """Say how much longer the longest chain is than it could be, and why."""
    waits, after = (graph.chunk_times_of(graph.chains(**{kind: False})) for kind in ("waits", "after"))
    neither = graph.chunk_times_of(graph.chains(waits=False, after=False))
    causes = []
    if waits < graph.chunk_times or neither < after:
        causes.append("`lanes.wait()` holds back every later copy: with `after=` a copy waits for one other copy alone")
    if (example := graph.unneeded()) is not None:
        later, earlier = example
        causes.append(
            f"GPU {later.target} gets {elements(later)} only after GPU {earlier.target} has {elements(earlier)}: "
            "pass as `after=` the copy that brings the elements to send, and no other"
        )
    if neither > TOLERANCE * graph.least_chunk_times:
        causes.append("a lane makes its copies in the order you give them: give those first whose elements come first")
    return f"copies wait without need: {beside(graph, ideal, chunks)}; {'; '.join(causes)}"
