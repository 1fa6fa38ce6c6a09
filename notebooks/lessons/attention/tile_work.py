"""The student's `tile_work`: which tiles of a causal attention are computed whole, masked or skipped."""

from __future__ import annotations

from labkit.course.judging import Mistake, judge_of

TILES = (
    (0, 0, 4, 4),
    (1, 0, 4, 4),
    (0, 1, 4, 4),
    (1, 1, 4, 2),
    (1, 2, 4, 2),
    (1, 3, 4, 2),
    (1, 4, 4, 2),
    (3, 1, 2, 4),
    (3, 2, 2, 4),
    (2, 1, 2, 4),
    (2, 2, 1, 1),
    (3, 2, 1, 1),
    (4, 2, 1, 2),
)  # number of the tile's row and column, queries in a tile, keys in a tile


def _tile(first_row: int, last_row: int, first_key: int, last_key: int, own_key: bool = True) -> str:
    """Return what a tile takes; without `own_key`, as if a query did not see the key of its own number."""
    if last_key + (not own_key) <= first_row:
        return "full"
    return "skip" if first_key > last_row else "mask"


judge_tile = judge_of(
    "tile_work",
    TILES,
    lambda row, column, rows, keys: _tile(row * rows, row * rows + rows - 1, column * keys, column * keys + keys - 1),
    (
        Mistake(
            "swapped_sizes",
            lambda row, column, rows, keys: _tile(
                row * keys, row * keys + rows - 1, column * rows, column * rows + keys - 1
            ),
            "the first query is the row times the queries of a tile; the first key is the column times its keys",
        ),
        Mistake(
            "numbers",
            lambda row, column, rows, keys: _tile(row, row, column, column) if row != column else "mask",
            "that compares the numbers of tiles; compare those of queries and keys, since tiles need not be square",
        ),
        Mistake(
            "end_too_far",
            lambda row, column, rows, keys: _tile(row * rows, row * rows + rows, column * keys, column * keys + keys),
            "the last query of a tile is its first one plus the tile's size minus 1",
        ),
        Mistake(
            "diagonal_full",
            lambda row, column, rows, keys: "skip" if column * keys > row * rows + rows - 1 else "full",
            "some keys of this tile come after some of its queries: it needs the mask",
        ),
        Mistake(
            "diagonal_skipped",
            lambda row, column, rows, keys: "full" if column * keys + keys - 1 <= row * rows else "skip",
            "some queries of this tile see some of its keys: it needs the mask",
        ),
        Mistake(
            "own_key",
            lambda row, column, rows, keys: _tile(
                row * rows, row * rows + rows - 1, column * keys, column * keys + keys - 1, own_key=False
            ),
            "a query sees the key of its own number",
        ),
    ),
    asked='"full", "mask" or "skip"',
    rule="a query sees its own key and those before it; full: all see all, skip: none sees any",
    merit="tiles that nobody sees are skipped, and only those on the diagonal are masked",
)
