"""Hints for the exercises of lab 11: where to look, what the structure is, almost the code."""

HINTS = {
    "gathered": (
        "Take `sizes = [4]`, the piece `(0, 0, 2, [1.0, 2.0])` on rank 0 and `(0, 2, 4, [3.0, 4.0])` on rank 1. "
        "Write down the whole moment by hand.",
        "`whole` already has a list of zeros for each parameter. Go through all pieces of all ranks, and write the "
        "values of each over its elements.",
        "`whole = [[0.0] * size for size in sizes]`. For each piece `(parameter, begin, end, values)`: "
        "`whole[parameter][begin:end] = values`.",
    ),
    "shards": (
        "Lay all parameters end to end. Where does the part of rank 1 begin?",
        "A rank's part is ⌈total / ranks⌉ elements. Go through the parameters and cut one wherever a rank's part "
        "ends inside it. A parameter may be cut more than once.",
        "Keep `at`, the number of elements that are given out. While a parameter has elements left: `rank = at //"
        " share`, `end = min(size, begin + (rank + 1) * share - at)`, append `(number, begin, end)` to that rank,"
        " then move `at` and `begin` on.",
    ),
}
