"""Hints for the exercises of lab 08: where to look, what the structure is, almost the code."""

HINTS = {
    "tile_work": (
        "Which queries and which keys are in the tile? Write down the first and the last number of both.",
        "Compare two pairs: the last key with the first query, and the first key with the last query. A query "
        "sees its own key and all before it.",
        "`first_query = row * tile_queries`, `last_query = first_query + tile_queries - 1`, and the same for "
        'keys. "full" if `last_key <= first_query`, "skip" if `first_key > last_query`, otherwise "mask".',
    ),
    "online_softmax": (
        "What changes in the old sums when the maximum rises? They were made with exponents counted from the old "
        "maximum.",
        "First the new maximum of `m` and all scores. Multiply `l` and `o` by the same factor. Then add the "
        "tile's weights to `l`, and its weighted values to `o`. Treat a row that has seen no key yet, and gets "
        "none, on its own.",
        "`m_new = max(m, *scores)`; if that is −inf, return everything as it was. `factor = exp(m - m_new)`, "
        "`weights = [exp(score - m_new) for score in scores]`, `l = factor * l + sum(weights)`, and each `o[i]` "
        "becomes `factor * o[i]` plus the sum of `weight * value[i]`.",
    ),
}
