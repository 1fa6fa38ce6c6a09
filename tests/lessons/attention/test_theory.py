"""Lab 08's arithmetic: tiles that end where the softmax of whole rows does; operations, bytes, what fits a memory."""

from itertools import pairwise
from math import exp, inf, log

import figures
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_attention import Problem

from lessons.attention import theory
from lessons.attention.charts import tiles_chart
from lessons.attention.theory import FULL, PARTLY, SKIPPED, Running, example, merged, rescale, tiled
from lessons.attention.worker import outputs_and_gradients
from lessons.attention.worker.flash import flash

EXACT = 1e-12


def direct(scores, values, causal):
    """Give every row's output and log-sum-exp from the whole row at once."""
    found = []
    for i, row in enumerate(scores):
        row = [score for j, score in enumerate(row) if j <= i or not causal]
        most = max(row)
        weights = [exp(score - most) for score in row]
        outputs = [sum(w * v for w, v in zip(weights, column, strict=False)) for column in zip(*values, strict=True)]
        found.append((tuple(output / sum(weights) for output in outputs), most + log(sum(weights))))
    return found


def finished(steps):
    """Return each row's output o / l and its log-sum-exp m + ln l after the last tile."""
    last = {row: kept for step in steps for row, kept in zip(step.rows, step.after, strict=True)}
    return [(tuple(part / row.total for part in row.output), row.maximum + log(row.total)) for row in last.values()]


def agree(found, wanted):
    assert len(found) == len(wanted)
    for (output, lse), (right, right_lse) in zip(found, wanted, strict=True):
        assert output == pytest.approx(right, abs=EXACT, rel=EXACT)
        assert lse == pytest.approx(right_lse, abs=EXACT, rel=EXACT)


@st.composite
def problems(draw):
    """Give scores and values of any shape; now and then the scores are so large that exp would overflow."""
    queries, keys, dimension = draw(st.integers(1, 9)), draw(st.integers(1, 9)), draw(st.integers(1, 3))
    shift = draw(st.sampled_from([0.0, 1000.0, -1000.0]))
    some = st.floats(-8, 8).map(lambda score: score + shift)
    scores = draw(st.lists(st.lists(some, min_size=keys, max_size=keys), min_size=queries, max_size=queries))
    value = st.lists(st.floats(-4, 4), min_size=dimension, max_size=dimension)
    return scores, draw(st.lists(value, min_size=keys, max_size=keys))


@settings(max_examples=200, deadline=None)
@given(problems(), st.integers(1, 10), st.integers(1, 10), st.booleans())
def test_any_tiles_end_where_the_whole_softmax_does(problem, tile_rows, tile_columns, causal):
    scores, values = problem
    steps = tiled(scores, values, tile_rows, tile_columns, causal)
    agree(finished(steps), direct(scores, values, causal))
    covered = [(i, j) for step in steps for i in step.rows for j in step.columns]
    assert sorted(covered) == [(i, j) for i in range(len(scores)) for j in range(len(values))]
    for step in steps:
        hidden = {causal and j > i for i in step.rows for j in step.columns}
        assert step.kind == (PARTLY if len(hidden) == 2 else SKIPPED if hidden == {True} else FULL)
        for i, line in zip(step.rows, step.scores, strict=True):
            assert list(line) == [-inf if causal and j > i else scores[i][j] for j in step.columns]
        for factor, before, after in zip(step.factors, step.before, step.after, strict=True):
            assert 0 <= factor <= 1 and before.maximum <= after.maximum
            assert factor == exp(before.maximum - after.maximum), "every row has seen its first key by now"
    for before, after in pairwise(steps):
        fresh = Running(-inf, 0.0, (0.0,) * len(values[0]))
        assert after.before == (before.after if after.rows == before.rows else (fresh,) * len(after.rows))


def test_tiles_go_along_the_rows():
    steps = tiled(*example(), 8, 4, True)
    assert [(step.rows.start, step.columns.start, step.kind) for step in steps] == [
        (0, 0, PARTLY),
        (0, 4, PARTLY),
        (0, 8, SKIPPED),
        (0, 12, SKIPPED),
        (8, 0, FULL),
        (8, 4, FULL),
        (8, 8, PARTLY),
        (8, 12, PARTLY),
    ]
    assert {step.kind for step in tiled(*example(), 8, 4, False)} == {FULL}
    for step in steps:
        assert (step.kind != SKIPPED) or (step.before == step.after and set(step.factors) == {1.0})


def test_one_tile_by_hand():
    before = Running(1.0, 2.0, (3.0, -1.0))
    after = merged(before, [2.0, 1.0], [[1.0, 0.0], [0.0, 1.0]])
    assert after.maximum == 2.0
    assert after.total == pytest.approx(3 / exp(1) + 1)
    assert after.output == pytest.approx((3 / exp(1) + 1, 0.0))


def test_masked_keys_change_nothing():
    fresh = Running(-inf, 0.0, (0.0,))
    row = merged(fresh, [0.5], [[2.0]])
    assert merged(fresh, [-inf, -inf], [[1.0], [2.0]]) == fresh
    assert merged(row, [-inf, -inf], [[1.0], [2.0]]) == row
    assert merged(fresh, [-inf, 0.5], [[9.0], [2.0]]) == row
    assert [rescale(fresh, fresh), rescale(fresh, row), rescale(row, row)] == [1.0, 0.0, 1.0]


def test_the_example_is_the_same_every_time_and_rescales():
    scores, values = example()
    assert (len(scores), len(scores[0]), len(values), len(values[0])) == (16, 16, 16, 2)
    assert example() == (scores, values)
    assert {round(score, 1) == score for row in [*scores, *values] for score in row} == {True}
    for causal in (False, True):
        agree(finished(tiled(scores, values, 4, 4, causal)), direct(scores, values, causal))
        factors = [factor for step in tiled(scores, values, 4, 4, causal) for factor in step.factors]
        assert sum(0 < factor < 1 for factor in factors) > 8, "a reader must see maxima rise"


@pytest.mark.parametrize(
    ("tile_rows", "tile_columns", "causal"), [(4, 4, True), (8, 4, False), (8, 8, True), (4, 2, True), (5, 7, True)]
)
def test_chart(monkeypatch, tile_rows, tile_columns, causal):
    monkeypatch.setattr(figures, "UNITS", ("key",))
    steps = tiled(*example(), tile_rows, tile_columns, causal)
    matrix, maxima, sums = figures.checked(tiles_chart(steps)).axes
    numbers = [text.get_text() for text in matrix.texts]
    wanted = ["×" if step.kind == SKIPPED else str(number) for number, step in enumerate(steps, start=1)]
    assert numbers == wanted
    row = int(maxima.get_title(loc="left").split()[1].rstrip(":"))
    places = [(step, row - step.rows[0]) for step in steps if row in step.rows and step.kind != SKIPPED]
    said = [text.get_text() for text in sums.texts]
    assert len(said) == sum(0 < step.factors[place] < 1 for step, place in places) > 0
    rises = [
        sum(0 < step.factors[other - step.rows[0]] < 1 for step in steps if other in step.rows) for other in range(16)
    ]
    assert rises[row] == max(rises)
    shown = [bar.get_height() for bar in sums.patches]
    before, kept, added = shown[::3], shown[1::3], shown[2::3]
    assert before == [step.before[place].total for step, place in places]
    assert [a + b for a, b in zip(kept, added, strict=True)] == pytest.approx(
        [step.after[place].total for step, place in places]
    )
    assert kept == pytest.approx([step.factors[place] * step.before[place].total for step, place in places])
    heights = [line.get_ydata() for line in maxima.lines if line.get_marker() == "o"]
    assert [list(found) for found in heights] == [list(step.scores[place]) for step, place in places]
    labels = [text.get_text() for text in matrix.figure.legends[0].get_texts()]
    assert ("masked score" in labels) == causal


@given(st.sampled_from(list(theory.SQUARES)), st.integers(0, 2**35), st.integers(1, 128), st.integers(1, 64))
def test_the_longest_sequence_fits_and_one_more_does_not(name, memory_bytes, width, heads):
    longest = theory.longest(name, memory_bytes, width, 4, heads=heads)
    needed = [
        theory.moment_bytes(name, "backward", n, width, 4, heads=heads) + 16 * heads * n * width
        for n in (longest, longest + 1)
    ]
    assert needed[0] <= memory_bytes < needed[1]


@given(st.integers(1, 40), st.integers(1, 40), st.booleans())
def test_scores_are_those_that_a_mask_leaves(queries, keys, causal):
    wanted = sum(1 for i in range(queries) for j in range(keys) if j <= i or not causal)
    assert theory.scores(queries, keys, causal) == wanted


def test_work_is_what_the_target_takes():
    setting = {"queries": 16384, "keys": 16384, "head_dim": 64}
    flops = {phase: theory.flops(phase, **setting, causal=True, heads=16) / 1e12 for phase in theory.PHASES}
    assert flops == {
        name: pytest.approx(t, abs=5e-3) for name, t in (("forward", 0.55), ("backward", 1.37), ("both", 1.92))
    }
    assert theory.flops("forward", **setting, causal=False) == 4 * 16384**2 * 64
    assert theory.square_bytes(16384, 16384, 4, heads=2) == 2**31


def test_least_bytes_are_those_of_what_goes_in_and_out():
    tensors = Problem((3,), 20, 31, 24, precision="bfloat16").tensors()
    q, k, v, do = tensors
    o, lse, dq, dk, dv = outputs_and_gradients(flash, *tensors, True).values()
    phases = {"forward": (q, k, v, o, lse), "backward": (q, k, v, o, do, lse, dq, dk, dv)}
    for phase, moved in phases.items():
        assert theory.least_bytes(phase, 20, 31, 24, 2, heads=3) == sum(x.nbytes for x in moved)
    assert theory.least_bytes("both", 5, 6, 7, 2) == sum(theory.least_bytes(phase, 5, 6, 7, 2) for phase in phases)
