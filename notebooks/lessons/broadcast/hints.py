"""Hints for the exercises of lab 02: where to look, what the structure is, almost the code."""

HINTS = {
    "pipelined": (
        "Look at what `copy` returns, and at what `after=` takes. One copy must wait for one other copy.",
        "For each part: first a copy from the host to GPU 0. Then one copy from GPU 0 to each other GPU, which "
        "waits for that first copy and for nothing else.",
        "`arrived = lanes.host(0).copy(copies[0][part], source[part])`. Then, for each `gpu` in "
        "`lanes.others(0)`: `lanes.peer(0, gpu).copy(copies[gpu][part], copies[0][part], after=arrived)`.",
    ),
    "scatter_all_gather": (
        "Which elements does GPU k pull from the host? Draw the tensor as one line, cut into equal shares.",
        "For each GPU: cut its share with `lanes.parts(share, chunks, first=…)`. Each chunk is pulled once, and "
        "sent to all others after it has arrived.",
        "`arrived = lanes.host(gpu).copy(copies[gpu][part], source[part])` for each `part` of `lanes.parts(share,"
        " chunks, first=gpu * share)`. Then, for `other` in `lanes.others(gpu)`: `lanes.peer(gpu, "
        "other).copy(copies[other][part], copies[gpu][part], after=arrived)`.",
    ),
}
