"""The exercises of lab 08: which tiles need work, a step of the online softmax, and the bug in an attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import exp
from random import Random
from typing import Any

from IPython.display import HTML

from labkit.course.exercises import CORE, WARM_UP, Cases, Exercise, Exercises, compared
from labkit.course.judging import Mistake, judge_of
from labkit.course.lineup import line_up, why, with_bugs
from labkit.course.verdict import RAISED, Verdict
from labkit.story import units
from lessons.attention.theory import Running, merged

SYMPTOMS = {  # find the bug: attentions that claim to be FlashAttention-2, and what each suspect shows
    "no_diagonal_mask": "the tile on the diagonal is not masked: queries see keys up to its end",
    "not_rescaled": "what was summed under a lower maximum keeps its weight when the maximum rises",
    "square_backward": "the backward builds the whole N×N matrix of probabilities again",
}
_TOLERANCE = 1e-3  # float32
_TOO_MUCH = 1.01  # a probability may be this times too large


def _tiles(random: Random) -> list:
    """Return tiles on, above and below the diagonal: numbers of row and column, queries and keys in a tile."""
    edges = [(0, 0, 4, 4), (1, 0, 4, 4), (1, 1, 4, 2), (1, 2, 4, 2), (1, 4, 4, 2), (3, 1, 2, 4), (3, 2, 2, 4)]
    edges += [(2, 1, 2, 4), (2, 2, 1, 1), (3, 2, 1, 1), (4, 2, 1, 2)]
    sizes = (16, 32, 48, 64, 128)
    drawn = [(random.randrange(6), random.randrange(8), random.choice(sizes), random.choice(sizes)) for _ in range(8)]
    return edges + drawn


def _tile(first_row: int, last_row: int, first_key: int, last_key: int, own_key: bool = True) -> str:
    """Return what a tile takes; without `own_key`, as if a query did not see the key of its own number."""
    if last_key + (not own_key) <= first_row:
        return "full"
    return "skip" if first_key > last_row else "mask"


def _sized(row: int, column: int, rows: int, keys: int, more: int = 0, **options: bool) -> str:
    """Return what a tile takes; `more`: how far its ends are put too far."""
    ends = row * rows + rows - 1 + more, column * keys + keys - 1 + more
    return _tile(row * rows, ends[0], column * keys, ends[1], **options)


_TILE_WORK = compared(
    "tile_work",
    _sized,
    (
        Mistake(
            "swapped_sizes",
            lambda r, c, rows, keys: _tile(r * keys, r * keys + rows - 1, c * rows, c * rows + keys - 1),
            "the first query is the row times the queries of a tile; the first key is the column times its keys",
        ),
        Mistake(
            "numbers",
            lambda r, c, *_: "mask" if r == c else _tile(r, r, c, c),
            "that compares the numbers of tiles; compare those of queries and keys, since tiles need not be square",
        ),
        Mistake(
            "end_too_far",
            lambda *tile: _sized(*tile, more=1),
            "the last query of a tile is its first one plus the tile's size minus 1",
        ),
        Mistake(
            "diagonal_full",
            lambda *tile: "full" if _sized(*tile) == "mask" else _sized(*tile),
            "some keys of this tile come after some of its queries: it needs the mask",
        ),
        Mistake(
            "diagonal_skipped",
            lambda *tile: "skip" if _sized(*tile) == "mask" else _sized(*tile),
            "some queries of this tile see some of its keys: it needs the mask",
        ),
        Mistake("own_key", lambda *tile: _sized(*tile, own_key=False), "a query sees the key of its own number"),
    ),
    result_form='"full", "mask" or "skip"',
    rule="a query sees its own key and those before it; full: all see all, skip: none sees any",
    merit="tiles that nobody sees are skipped, and only those on the diagonal are masked",
    grade=WARM_UP,
    cases=Cases(_tiles),
    hints=(
        "Which queries and which keys are in the tile? Write down the first and the last number of both.",
        "Compare two pairs: the last key with the first query, and the first key with the last query. A query "
        "sees its own key and all before it.",
        "`first_query = row * tile_queries`, `last_query = first_query + tile_queries - 1`, and the same for "
        'keys. "full" if `last_key <= first_query`, "skip" if `first_key > last_query`, otherwise "mask".',
    ),
)


def _steps(random: Random) -> list:
    """Return what a row keeps (m, l, o), scores and values: first tiles, rising maxima, masked keys, large scores."""

    def drawn(low: float, high: float, count: int) -> list[float]:
        return [round(random.uniform(low, high), 2) for _ in range(count)]

    def step(maximum: float, masked: int = 0, around: float = 0.0) -> tuple:
        keys, width = random.randint(max(2, masked), 4), random.randint(1, 3)
        scores = [round(score + around, 2) for score in drawn(-3, 3, keys)]
        for key in random.sample(range(keys), masked):
            scores[key] = -math.inf
        values = [drawn(-2, 2, width) for _ in range(keys)]
        fresh = maximum == -math.inf
        return (
            maximum,
            0.0 if fresh else drawn(1, 4, 1)[0],
            [0.0] * width if fresh else drawn(-2, 2, width),
            scores,
            values,
        )

    nothing = [-math.inf] * 2, [[1.0, 2.0], [0.5, 0.0]]
    return [
        (1.0, 2.0, [0.5, -1.0], [3.0, 2.0], [[1.0, -2.0], [0.5, 3.0]]),  # the maximum rises
        (3.0, 1.5, [0.5, 2.0], [1.0, -0.5], [[1.0, -2.0], [0.5, 3.0]]),  # it stays
        step(-math.inf),
        step(-math.inf, 1),
        *(step(drawn(-4, 4, 1)[0]) for _ in range(4)),
        *(step(drawn(-2, 2, 1)[0], 1) for _ in range(2)),
        *(step(around + 1, around=around) for around in (1000.0, -1000.0)),
        (1.0, 1.5, [0.25, -1.0], *nothing),
        (-math.inf, 0.0, [0.0, 0.0], *nothing),
    ]


def _merged_row(m: float, l: float, o: list[float], scores: list[float], values: list) -> Running:  # noqa: E741
    return merged(Running(m, l, tuple(o)), scores, values)


def _old(weight: Callable[[float, float], float], *, of_l: bool = True, of_o: bool = True) -> Callable[..., tuple]:
    """Return the step with another weight of the old l, o or both than exp(m_old − m_new)."""

    def step(m, l, o, scores, values):  # noqa: E741
        m_new, total, output = _merged_row(m, l, o, scores, values)
        if m == -math.inf:
            raise ValueError("a row's first tile has no old sums")
        other = weight(m, m_new) - exp(m - m_new)
        output = [new + of_o * other * old for new, old in zip(output, o, strict=True)]
        return m_new, total + of_l * other * l, output

    return step


def _own_maximum(m, l, o, scores, values):  # noqa: E741
    m_new, factor = max(scores), exp(m - max(scores))
    if m_new == -math.inf:
        return m, l, o
    tile = _merged_row(-math.inf, 0.0, [0.0] * len(o), scores, values)
    return m_new, factor * l + tile.total, [factor * old + new for old, new in zip(o, tile.output, strict=True)]


def _divided(*step: Any) -> tuple:
    m, total, output = _merged_row(*step)
    return m, total, [part / total for part in output]


def _unguarded(m, l, o, scores, values):  # noqa: E741
    m_new = max(m, *scores)
    return _merged_row(m, l, o, scores, values) if m_new > -math.inf else (m_new, math.nan, [math.nan] * len(o))


def _with_nan_as_word(row: Any) -> Any:
    """Return a result in which nan is a word, so that two of them are equal."""
    if isinstance(row, list | tuple):
        return [_with_nan_as_word(part) for part in row]
    return "nan" if isinstance(row, float) and math.isnan(row) else row


def _mistake(kind: str, made: Callable[..., Any], sentence: str) -> Mistake:
    return Mistake(kind, lambda *step: _with_nan_as_word(made(*step)), sentence)


_RESCALED = "multiply the old l and the old o by exp(m_old − m_new) when the maximum rises"
_judge_step = judge_of(
    "online_softmax",
    _merged_row,
    (
        _mistake("l_not_rescaled", _old(lambda *_: 1.0, of_o=False), f"the old l keeps its weight; {_RESCALED}"),
        _mistake("o_not_rescaled", _old(lambda *_: 1.0, of_l=False), f"the old o keeps its weight; {_RESCALED}"),
        _mistake("not_rescaled", _old(lambda *_: 1.0), f"the old sums keep their weight; {_RESCALED}"),
        _mistake("l_forgotten", _old(lambda *_: 0.0, of_o=False), f"the old l is missing; {_RESCALED}"),
        _mistake("o_forgotten", _old(lambda *_: 0.0, of_l=False), f"the old o is missing; {_RESCALED}"),
        _mistake("forgotten", _old(lambda *_: 0.0), f"the old sums are missing; {_RESCALED}"),
        _mistake("upside_down", _old(lambda m, new: exp(new - m)), f"the factor is upside down; {_RESCALED}"),
        _mistake("own_maximum", _own_maximum, "the new m is the largest of the old m and all scores"),
        _mistake("divided", _divided, "o is divided by l only once, after the last tile of the row"),
        _mistake("masked", _unguarded, "where every key so far is masked, nothing changes: −inf − (−inf) is nan"),
    ),
    result_form="m, l and o, a list",
    rule="m: the largest so far; l: the sum of exp(score − m); o: the sum of exp(score − m) · value",
    merit="l and o are rescaled alike, no exponent is above 0, and masked keys change nothing",
)


def judge_online(given: list, cases: Sequence[Sequence[Any]]) -> Verdict:
    """Return the verdict on m, l and o after one more tile, for each case."""
    return _judge_step([_with_nan_as_word(row) for row in given], cases)


def explain_overflow(verdict: Verdict) -> Verdict:
    """Return the verdict on a call that raised or hung; where exp overflowed, it says why."""
    if verdict.outcome != RAISED or "OverflowError" not in verdict.detail:
        return verdict
    why_so = "exp overflows above 709: take the new maximum from each score first, so that no exponent is above 0"
    return replace(verdict, faults=verdict.faults | {"overflow": why_so})


check = Exercises(
    "attention",
    _TILE_WORK,
    Exercise(
        "online_softmax",
        judge=judge_online,
        on_failure=explain_overflow,
        grade=CORE,
        cases=Cases(_steps),
        hints=(
            "What changes in the old sums when the maximum rises? They were made with exponents counted from the old "
            "maximum.",
            "First the new maximum of `m` and all scores. Multiply `l` and `o` by the same factor. Then add the "
            "tile's weights to `l`, and its weighted values to `o`. Treat a row that has seen no key yet, and gets "
            "none, on its own.",
            "`m_new = max(m, *scores)`; if that is −inf, return everything as it was. `factor = exp(m - m_new)`, "
            "`weights = [exp(score - m_new) for score in scores]`, `l = factor * l + sum(weights)`, and each `o[i]` "
            "becomes `factor * o[i]` plus the sum of `weight * value[i]`.",
        ),
    ),
)
hint, solution, attempts = check.hint, check.solution, check.attempts


def verdict_of(row: dict) -> Verdict:
    """Return the verdict on one variant's row: a sentence a fault."""
    faults: dict[str, str] = {}
    if row["sees_ahead"] > 0:
        faults["no_diagonal_mask"] = (
            f"a query sees up to {row['sees_ahead']} keys after its own: nothing is masked inside the diagonal's tile"
        )
    if row["early_weight"] > _TOO_MUCH:
        faults["not_rescaled"] = (
            f"a probability comes out {units.times(row['early_weight'])} too large: what was summed under a lower "
            "maximum is not scaled down when the maximum rises"
        )
    if row["backward_largest"] >= 1:
        faults["square_backward"] = "its backward makes an N×N tensor"
    worst = max(row["all_error"], row["causal_error"], row["gradient_error"])
    if worst > _TOLERANCE and not faults:
        faults["wrong"] = f"it differs from float64 by {units.number(worst)}"
    merit = "values and gradients are float64's, masks hold, and nothing N×N is ever there"
    return Verdict.of_faults(row["variant"], faults, merit)


RIGHT_PROGRAM = """
def forward(q, K, V):  # one tile of queries
    m, l, o = -inf, 0, 0
    for k, v in tiles(K, V):
        if first(k) > last(q):
            break
        s = q @ k.T * scale
        if last(k) > first(q):
            s = where(keys(k) <= queries(q), s, -inf)
        m_new = max(m, s.max())
        p = exp(s - m_new)
        l = exp(m - m_new) * l + p.sum()
        o = exp(m - m_new) * o + p @ v
        m = m_new
    return o / l, m + log(l)

def backward(q, K, V, dO, δ, L):
    for k, v in tiles(K, V):
        if first(k) > last(q):
            break
        s = q @ k.T * scale
        if last(k) > first(q):
            s = where(keys(k) <= queries(q), s, -inf)
        p = exp(s - L)
        ds = p * (dO @ v.T - δ) * scale
        yield ds @ k, ds.T @ q, p.T @ dO
"""
_MASK = "        if last(k) > first(q):\n            s = where(keys(k) <= queries(q), s, -inf)\n"
_LOOP = "def backward(q, K, V, dO, δ, L):\n    for k, v in tiles(K, V):\n"
_WHOLE = "def backward(Q, K, V, dO, δ, L):\n    for q, k, v in [(Q, K, V)]:\n"
_CODES = with_bugs(
    RIGHT_PROGRAM,
    {
        "no_diagonal_mask": [(_MASK + line, line) for line in ("        m_new = ", "        p = exp(s - L)")],
        "not_rescaled": [("exp(m - m_new) * l + p.sum()", "l + p.sum()"), ("exp(m - m_new) * o + p @ v", "o + p @ v")],
        "square_backward": [(_LOOP, _WHOLE)],
    },
)
suspects, diagnose, show_suspects = line_up("attention", SYMPTOMS, lambda run: run.rows, verdict_of, _CODES)


def why_four_matrices() -> HTML:
    """Ask why plain attention's backward needs four N×N matrices on a GPU."""
    return why(
        "Forward leaves one N×N matrix. Why are there four in backward?",
        ("Backward makes three more of its size", "P was kept. dP and dS are made, and dP∘P on the way to dS."),
        ("S was kept, too", "No: torch's softmax needs only its result, P. A softmax written by hand keeps one more."),
        ("Q, K, V and O need gradients", "True, but these are N×d: at 16 384 positions 256 times smaller."),
    )
