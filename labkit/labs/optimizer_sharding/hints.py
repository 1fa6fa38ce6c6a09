"""Hints for the exercises of lab 11: where to look, what the structure is, almost the code."""

HINTS = {
    "gathered": (
        "Write down which elements of parameter 0 the first example has on which rank.",
        "Make an empty list of the right length for each parameter. Then go through all pieces of all ranks, and "
        "put each where it belongs.",
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
