"""Reference solutions of the exercises of lab 11, as a student would write them."""


def gathered(sizes, parts):
    whole = [[0.0] * size for size in sizes]
    for part in parts:
        for parameter, begin, end, values in part:
            whole[parameter][begin:end] = values
    return whole
