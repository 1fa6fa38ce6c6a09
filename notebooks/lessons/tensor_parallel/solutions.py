"""Reference solutions of the exercises of lab 16, as a student would write them."""


def local_part(layer, outputs, inputs, ranks, rank):
    rows, columns = [0, outputs], [0, inputs]
    if layer in ("query", "key", "value", "gate", "up", "embedding", "head"):
        rows = [rank * outputs // ranks, (rank + 1) * outputs // ranks]
    elif layer in ("out", "down"):
        columns = [rank * inputs // ranks, (rank + 1) * inputs // ranks]
    return rows + columns
