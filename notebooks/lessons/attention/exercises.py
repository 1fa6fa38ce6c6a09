"""The exercises of lab 08: which tiles need work, a tile that is added to a softmax, and the bug in an attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from math import exp
from random import Random
from typing import TYPE_CHECKING, Any

from IPython.display import HTML

from labkit.course.exercises import CORE, WARM_UP, Cases, Exercise, Exercises, Trial, compared
from labkit.course.judging import Mistake, judge_of
from labkit.course.lineup import line_up, why, with_bugs
from labkit.course.verdict import Verdict
from labkit.story import units
from lessons.attention.plan import Errors, Race
from lessons.attention.tables.memory import errors
from lessons.attention.tables.speed import race
from lessons.attention.theory import Running, merged

if TYPE_CHECKING:
    from labkit.engine.run import Run

SYMPTOMS = {  # find the bug: attentions that claim to be FlashAttention-2, and what each suspect shows
    "no_diagonal_mask": "the tile on the diagonal is not masked: queries see keys up to its end",
    "not_rescaled": "what was summed under a lower maximum keeps its weight when the maximum rises",
    "square_backward": "the backward builds the whole N×N matrix of probabilities again",
}
_TOLERANCE = 1e-3  # float32
_CLOSE = 1e-5  # of one tile: an answer may compute in float32
_TOO_MUCH = 1.01  # a probability may be this times too large


def _tiles(random: Random) -> list:
    """Return tiles on, above and below the diagonal: numbers of row and column, queries and keys in a tile."""
    edges = [(0, 0, 4, 4), (1, 0, 4, 4), (1, 1, 4, 2), (1, 2, 4, 2), (1, 4, 4, 2), (3, 1, 2, 4), (3, 2, 2, 4)]
    edges += [(2, 1, 2, 4), (2, 2, 1, 1), (3, 2, 1, 1), (4, 2, 1, 2), (1, 3, 4, 2)]
    drawn = []
    for queries, keys in ((64, 64), (128, 32), (32, 128), (64, 48), (48, 64)):
        row = random.randint(4, 12)
        own = row * queries // keys, ((row + 1) * queries - 1) // keys  # of the first and of the last query
        columns = sorted({own[0] - 1, *own, own[1] + 1})
        drawn += [(row, column, queries, keys) for column in columns]
    return edges + random.sample(drawn, len(drawn))  # in an order that tells nothing


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


def _tiles_to_add(random: Random) -> list:
    """Return one rank; m, l and o of some queries; a tile's scores for each, and its values.

    There are first tiles, rising maxima, masked keys, and scores whose exponentials overflow.
    """

    def drawn(low: float, high: float, count: int) -> list[float]:
        return [round(16 * random.uniform(low, high)) / 16 for _ in range(count)]  # float32 holds them exactly

    def tile(*maxima: float, masked: int = 0, around: float = 0.0) -> tuple:
        keys, width = random.randint(max(2, masked + 1), 4), random.randint(2, 3)
        scores = [[score + around for score in drawn(-3, 3, keys)] for _ in maxima]
        for row in scores:
            for key in random.sample(range(keys), masked):
                row[key] = -math.inf
        fresh = [maximum == -math.inf for maximum in maxima]
        sums = [0.0 if new else drawn(1, 4, 1)[0] for new in fresh]
        outputs = [[0.0] * width if new else drawn(-2, 2, width) for new in fresh]
        return 1, [*maxima], sums, outputs, scores, [drawn(-2, 2, width) for _ in range(keys)]

    rising = [[0.5, -1.0], [0.5, 2.0]], [[3.0, 2.0], [1.0, -0.5]], [[1.0, -2.0], [0.5, 3.0]]
    unseen = [[0.25, -1.0]], [[-math.inf] * 2], [[1.0, 2.0], [0.5, 0.0]]
    return [
        (1, [1.0, 3.0], [2.0, 1.5], *rising),  # the first query's maximum rises, the second's stays
        tile(-math.inf, -math.inf),
        tile(-math.inf, 0.5, masked=1),
        tile(*drawn(-4, 4, 3)),
        tile(*drawn(-2, 2, 2), masked=1),
        *(tile(around + 1, around, around=around) for around in (1000.0, -1000.0)),
        (1, [1.0], [1.5], *unseen),
    ]


def _merged_row(m: float, l: float, o: list[float], scores: list[float], values: list) -> list:  # noqa: E741
    row = merged(Running(m, l, tuple(o)), scores, values)
    return [row.maximum, row.total, [*row.output]]


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
    _, total, output = _merged_row(-math.inf, 0.0, [0.0] * len(o), scores, values)
    return m_new, factor * l + total, [factor * old + new for old, new in zip(o, output, strict=True)]


def _divided(*step: Any) -> tuple:
    m, total, output = _merged_row(*step)
    return m, total, [part / total for part in output]


_RESCALED = "the exponents in the old sums count from the old maximum, and all must count from one"
_judge_row = judge_of(
    "add_tile",
    _merged_row,
    (
        Mistake("l_not_rescaled", _old(lambda *_: 1.0, of_o=False), f"the old l keeps its weight; {_RESCALED}"),
        Mistake("o_not_rescaled", _old(lambda *_: 1.0, of_l=False), f"the old o keeps its weight; {_RESCALED}"),
        Mistake("not_rescaled", _old(lambda *_: 1.0), f"the old sums keep their weight; {_RESCALED}"),
        Mistake("l_forgotten", _old(lambda *_: 0.0, of_o=False), f"the old l is missing; {_RESCALED}"),
        Mistake("o_forgotten", _old(lambda *_: 0.0, of_l=False), f"the old o is missing; {_RESCALED}"),
        Mistake("forgotten", _old(lambda *_: 0.0), f"the old sums are missing; {_RESCALED}"),
        Mistake("upside_down", _old(lambda m, new: exp(new - m)), f"the factor is upside down; {_RESCALED}"),
        Mistake("own_maximum", _own_maximum, "the new m is the larger of the old m and the largest score"),
        Mistake("divided", _divided, "o is divided by l only once, after the last tile of the row"),
    ),
    result_form="m, l and o",
    rule="m: the largest so far; l: the sum of exp(score − m); o: the sum of exp(score − m) · value",
    merit="l and o are rescaled alike, no exponent is above 0, and masked keys change nothing",
    close=(_CLOSE, _CLOSE),
)


def judge_tile(given: Sequence, inputs: Sequence, _due: Sequence = ()) -> Verdict:
    """Return the verdict on m, l and o of each query after one more tile, for each of the tiles."""
    rows, cases = [], []
    for (found,), (_, m, l, o, scores, values) in zip(given, inputs, strict=True):  # noqa: E741
        if "form" in found:
            return Verdict.of_faults(
                "add_tile", {"form": f"with {len(m)} queries and {len(values)} keys it {found['form']}"}
            )
        rows += found
        cases += [(*query, values) for query in zip(m, l, o, scores, strict=True)]
    return _judge_row(rows, cases)


def _tried(file: str, *, size: str = "small", gpus: int = 0) -> list[Errors | Race]:
    sequences = (1024,) if Race.sized(size, gpus=gpus).device == "cuda" else (256,)
    race = {"implementations": ("plain", "tiled", "sdpa_flash"), "sequences": sequences, "head_dims": (64,)}
    return [
        Errors.sized(size, gpus=gpus, seeds=1, yours=file, implementations=()),
        Race.sized(size, gpus=gpus, seeds=1, yours=file, **race),
    ]


def judge_run(run: Run) -> Verdict:
    """Return the verdict on your tiles beside float64 (an Errors run), or their times beside others (a Race run)."""
    where = f"on {run.plan.workers_text}"
    if isinstance(run.plan, Errors):
        table = errors(run)
        table["share"] = table["share"].fillna(math.inf)  # nan is no small error
        worst = table.loc[table["share"].idxmax()]
        wrong = {
            "error": f"{where}, {worst['tensor']} of {worst['shape']} (queries × keys × d) is off by "
            f"{units.times(worst['share'])} the tolerance"
        }
        merit = f"{where}, O, L and all gradients are within {units.percent(worst['share'])} of the tolerance"
        return Verdict.of_faults("add_tile", {} if worst["share"] <= 1 else wrong, merit)
    table = race(run)
    rows = table[(table["phase"] == "both") & (table["clock"] == "launched")].set_index("implementation")
    yours, ours, plain, torchs = (
        units.seconds(rows.loc[name, "ms"] / 1e3) for name in ("yours", "tiled", "plain", "sdpa_flash")
    )
    length = units.count(rows["sequence"].iloc[0])
    return Verdict.of_faults(
        "add_tile",
        {},
        f"{where}, forward and backward of {length} positions take {yours} with your tiles, {ours} with the reference "
        f"solution, {plain} with the N×N matrix and {torchs} in torch's one kernel: tiles alone are not fast",
    )


check = Exercises(
    "attention",
    _TILE_WORK,
    Exercise(
        "add_tile",
        judge=judge_tile,
        trial=Trial(_tried, judge_run),
        grade=CORE,
        solution=("lessons.attention.worker.plain.add_tile",),
        cases=Cases(
            _tiles_to_add,
            driver="lessons.attention.worker.tried",
            on_ranks=True,
            reference=("lessons.attention.worker.plain.add_tile",),
            may_import=tuple(f"lessons.attention.worker.{name}" for name in ("tried", "plain")),
            start_s=40.0,  # torch
        ),
        hints=(
            "What changes in the old sums when the maximum rises? They were made with exponents counted from the old "
            "maximum.",
            "First the new maximum of `m` and each query's scores, `s.amax(-1)`. Multiply `l` and `o` by the same "
            "factor. Then add the tile's weights to `l`, and its weighted values to `o`.",
            "`m_new = torch.maximum(m, s.amax(-1))`, `p = (s - m_new[..., None]).exp()`, `factor = (m - m_new).exp()`; "
            "then `factor * l + p.sum(-1)` and `factor[..., None] * o + p @ v`.",
        ),
    ),
)
hint, solution, attempts, yours = check.hint, check.solution, check.attempts, check.yours


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
