"""Lab 08's plain, memory, errors and trial runs: formulas as an H200 measured them, tables, charts, both stories."""

import math

import figures
import pandas as pd
import pytest
from figures import checked
from made import CPU, gpu_node, said, write_run

from labkit.provenance import fact
from labkit.story.names import ATTENTION_NAMES
from lessons.attention.charts.memory import memory_chart
from lessons.attention.charts.speed import plain_chart
from lessons.attention.plan import Errors, Memory, Plain
from lessons.attention.story.memory import explain_errors, explain_memory, explain_plain
from lessons.attention.tables import memory as tables
from lessons.attention.tables.speed import WIDTH
from lessons.attention.theory import MOMENTS, longest, moment_bytes, needed_bytes

MIB, GIB = 2**20, 2**30
OURS = ATTENTION_NAMES["flash"]
NO_MEMORY = {"status": "out of memory"}
MS = {"forward": 1.0, "backward": 2.5, "both": 3.5, "unsynchronised": 0.08}

COMPILED = {"compiled_sequences": (256, 1024, 4096, 8192, 16384, 32768), "compiled_head_dims": (64,)}
LENGTHS = (256, 1024, 4096, 8192, 16384, 32768)  # of plain attention; the last one fails


@pytest.fixture(autouse=True)
def memory_has_units(monkeypatch):
    monkeypatch.setattr(figures, "UNITS", (*figures.UNITS, "MiB", "tokens"))


def fits(point, squares_gib=140.0) -> bool:
    if point.implementation == "compiled":
        return True
    form = {"heads": point.heads, "causal": point.causal}
    width = WIDTH[point.precision]
    return needed_bytes(point.implementation, point.sequence, point.head_dim, width, **form) < squares_gib * GIB


def weight(point, gpu: bool) -> dict:
    """Give the memory row of a point, just as the formulas say."""
    if point.implementation == "compiled":
        square = point.heads * point.sequence**2 * WIDTH[point.precision] / MIB
        return {"forward_mib": square, "held_mib": square, "backward_mib": 3 * square}
    form = {"heads": point.heads, "causal": point.causal}
    size = {
        moment: moment_bytes(
            point.implementation, moment, point.sequence, point.head_dim, WIDTH[point.precision], **form
        )
        for moment in MOMENTS
    }
    more = {f"{moment}_mib": size[moment] / MIB for moment in MOMENTS[1:]} if gpu else {}
    return {"kept_bytes": size["kept"]} | more


def times(point) -> dict:
    """Give ms: as N² from 1 at 4096, launching without waiting takes 0.08 ms at any length."""
    slower = {"by_hand": 2.0, "plain": 1.0, "compiled": 0.5}[point.implementation]
    return {
        name: slower * (ms if name == "unsynchronised" else max(ms * (point.sequence / 4096) ** 2, 0.1))
        for name, ms in MS.items()
    }


def written(folder, plan, *, change=lambda point, row: row, time=times, failed=lambda point: not fits(point)):
    """Write a run of Plain or Memory; `change` alters the memory's row."""
    gpu, rows = plan.device == "cuda", []
    for point in plan.points():
        if failed(point):
            rows.append((0, vars(point) | NO_MEMORY))
            continue
        rows.append((0, vars(point) | {"phase": "memory"} | change(point, weight(point, gpu))))
        if isinstance(plan, Plain):
            rows += [(0, vars(point) | {"phase": phase, "ms": ms}) for phase, ms in time(point).items()]
    return write_run(folder, plan, gpu_node(1) if gpu else CPU, rows)


def full(kind, **knobs):
    return kind.full(**{"device": "cuda", "gpus": 1, "seeds": (0,)} | knobs)


def small(kind, **knobs):
    return kind.small(**{"device": "cpu", "seeds": (0,)} | knobs)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("memory")
    return {
        "plain": written(
            folder / "plain", full(Plain, sequences=LENGTHS, compiled_sequences=LENGTHS, compiled_head_dims=(64,))
        ),
        "plain_small": written(folder / "plain_small", small(Plain)),
        "memory": written(folder / "memory", full(Memory)),
        "memory_small": written(folder / "memory_small", small(Memory)),
    }


def at(table, **where):
    """Give the one row at a setting."""
    chosen = table[(table[list(where)] == pd.Series(where)).all(axis=1)]
    assert len(chosen) == 1
    return chosen.iloc[0]


# What one H200 measured, in MiB: kept, forward, held, backward. None: disturbed by the tuner's own buffer.
@pytest.mark.parametrize(
    ("implementation", "setting", "measured"),
    [
        ("plain", (16384, 16, 4, 8, False), (8216, 16392, 8208, 32792)),
        ("plain", (256, 64, 4, 8, False), (3.5, 4.5, 3.0, 9.5)),
        ("plain", (16384, 64, 2, 16, True), (8544, 16672, 8512, 33120)),
        ("by_hand", (16384, 16, 4, 8, False), (None, 24592.5, 16400.5, 49176.5)),
        ("by_hand", (2048, 64, 2, 16, True), (None, 396.0625, 268.0625, 784.0625)),
        ("flash", (16384, 64, 2, 16, True), (129, 33, 33, None)),
        ("flash", (65536, 64, 2, 16, True), (516, 132, 132, 524)),
    ],
)
def test_formulas_are_what_an_h200_measured(implementation, setting, measured):
    sequence, head_dim, width, heads, causal = setting
    for moment, mib in zip(MOMENTS, measured, strict=True):
        size = moment_bytes(implementation, moment, sequence, head_dim, width, heads=heads, causal=causal)
        assert mib is None or size / MIB == mib, moment


@pytest.mark.parametrize("implementation", ["plain", "by_hand", "flash"])
def test_longest_is_the_last_that_fits(implementation):
    form = {"heads": 8, "causal": True}
    most = longest(implementation, 80 * GIB, 64, 4, **form)
    assert needed_bytes(implementation, most, 64, 4, **form) <= 80 * GIB
    assert needed_bytes(implementation, most + 1, 64, 4, **form) > 80 * GIB


def test_plain_gives_every_setting_its_times_memory_and_verdicts(runs):
    table = tables.plain(runs["plain"])
    assert len(table) == 6 * 4 * 2 + 6
    row = at(table, implementation="plain", head_dim=64, sequence=16384)
    assert (row["forward_ms"], row["backward_ms"], row["both_ms"], row["unsynchronised_ms"]) == (16, 40, 56, 0.08)
    assert (row["kept_mib"], row["backward_mib"]) == (8192 + 3 * 32, 4 * 8192 + 3 * 32)
    narrow = at(table, implementation="plain", head_dim=16, sequence=16384)
    assert narrow["forward_least_ms"] == pytest.approx(2 * narrow["backward_least_ms"]), "P is written, read; read"
    assert list(row[["forward_verdict", "backward_verdict", "unsynchronised_verdict"]]) == ["ok", "ok", "impossible"]
    assert at(table, implementation="plain", head_dim=64, sequence=256)["unsynchronised_verdict"] == "ok"
    close = at(table, implementation="by_hand", head_dim=16, sequence=4096)
    assert close["backward_least_ms"] < close["unsynchronised_ms"] < close["forward_least_ms"]
    assert close["unsynchronised_verdict"] == "impossible", "it is judged as a forward's time"
    gone = at(table, implementation="by_hand", head_dim=64, sequence=32768)
    assert (gone["status"], gone["forward_verdict"]) == (
        "out of memory in the first forward or backward",
        "not measured",
    )
    assert fact(table, "small") is False and fact(table, "source")


def test_a_phase_that_runs_out_of_memory_is_named(tmp_path):
    plan = full(Plain, implementations=("plain",), sequences=(1024,), head_dims=(16,))
    point = plan.points()[0]
    told = [
        {"phase": "memory"} | weight(point, True),
        {"phase": "forward", "ms": 1.0},
        {"phase": "unsynchronised", "ms": 0.1},
        NO_MEMORY,
    ]
    table = tables.plain(write_run(tmp_path / "run", plan, gpu_node(1), [(0, vars(point) | row) for row in told]))
    assert (table["status"].item(), table["forward_ms"].item()) == ("out of memory in backward", 1.0)


def test_a_cpu_has_no_limit_and_tells_what_is_kept(runs):
    table = tables.plain(runs["plain_small"])
    assert set(table["forward_verdict"]) | set(table["unsynchronised_verdict"]) == {"no limit known"}
    held = tables.held(runs["memory_small"])
    assert (held["kept_squares"] == held["due_squares"]).all() and held["backward_squares"].isna().all()
    limit = tables.limit(runs["memory_small"])
    assert limit[["failed", "fits", "memory_gib", "reserved_squares"]].isna().all(axis=None)
    assert set(limit["ran"]) == set(limit["sequence"]) == {64}


def test_held_counts_matrices_and_growth(runs, tmp_path):
    table = tables.held(runs["memory"])
    rows = {name: at(table, implementation=name, sequence=16384) for name in ("plain", "by_hand", "flash")}
    for name, squares in (("plain", (1, 2, 1, 4)), ("by_hand", (2, 3, 2, 6)), ("flash", (0, 0, 0, 0))):
        assert tuple(rows[name][f"{moment}_squares"] for moment in MOMENTS) == pytest.approx(squares)
    assert rows["flash"]["exponent"] == pytest.approx(1) and rows["plain"]["exponent"] == pytest.approx(1.98, abs=0.01)
    assert at(table, implementation="by_hand", sequence=32768)[["kept_mib", "exponent"]].isna().all()
    more = written(
        tmp_path / "more",
        full(Memory),
        change=lambda point, row: (
            row | {"kept_bytes": row["kept_bytes"] + 2 * point.heads * point.sequence**2, "reserved_mib": 100.0}
        ),
    )
    odd = at(tables.held(more), implementation="flash", sequence=4096)
    assert (odd["kept_squares"], odd["reserved_squares"]) == (1, 100 / 512)
    compiled = at(tables.held(runs["plain"]), implementation="compiled", sequence=4096)
    assert math.isnan(compiled["kept_formula_mib"]) and compiled["held_squares"] == 1


def test_limit_accounts_for_the_shortest_that_fails(runs):
    table = tables.limit(runs["plain"])
    assert len(table) == 8 and "compiled" not in set(table["implementation"])
    row = at(table, implementation="by_hand", head_dim=64)
    assert (row["ran"], row["failed"], row["square_gib"], row["backward_squares"]) == (16384, 32768, 32, 6)
    assert row["backward_gib"] == pytest.approx(192, rel=0.01) and row["needed_gib"] > row["backward_gib"]
    assert row["memory_gib"] == pytest.approx(140.4, abs=0.1) and 16384 < row["fits"] < 32768


def errors_run(folder, *, worst=0.0, same=True, plan=None):
    plan = plan or full(Errors, tiled_most=2**21)
    tensors = {f"{name}_error": 1e-6 for name in tables.TENSORS}
    rows = [(0, vars(point) | tensors | {"same_bits": True}) for point in plan.points()]
    rows[-1][1].update({"dK_error": worst or 1e-6, "same_bits": same})
    return write_run(folder, plan, gpu_node(1) if plan.device == "cuda" else CPU, rows)


def test_errors_gives_the_worst_of_all_shapes(tmp_path):
    table = tables.errors(errors_run(tmp_path / "run", worst=0.008, same=False))
    row = at(table, implementation="flash", precision="bfloat16", tensor="dK")
    assert (row["worst"], row["tolerance"], row["shapes"], row["same_bits"]) == (0.008, 0.01, 10, False)
    assert row["share"] == pytest.approx(0.8) and row["shape"] == "1 × 1000 × 16"
    assert at(table, implementation="tiled", precision="float32", tensor="O")["same_bits"]


@pytest.mark.parametrize("name", ["plain", "plain_small"])
def test_plain_chart(runs, name):
    table = tables.plain(runs[name])
    figure = checked(plain_chart(table))
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert ("impossible" in labels) == ("least time, plain" in labels) == (name == "plain")
    own = table[(table["head_dim"] == 64) & (table["implementation"] == "plain")]
    assert any(
        list(line.get_ydata()) == list(own["unsynchronised_ms"])
        for line in figure.axes[0].lines
        if line.get_linestyle() == "--"
    )


@pytest.mark.parametrize(("name", "panels"), [("memory", 2), ("plain", 2), ("memory_small", 1), ("plain_small", 1)])
def test_memory_chart(runs, name, panels):
    table = tables.held(runs[name])
    figure = checked(memory_chart(table))
    assert len(figure.axes) == panels
    gone = table[(table["head_dim"] == 64) & (table["status"] != "ok")]
    crosses = [line for line in figure.axes[0].lines if line.get_marker() == "x"]
    assert sum(len(line.get_xdata()) for line in crosses) == len(gone)
    assert len(figure.axes[0].texts) == (panels == 2), "a GPU's memory is a line with its size"


def test_the_story_of_plain_attention(runs, tmp_path):
    said(
        explain_plain(tables.plain(runs["plain"])),
        (
            "**Times follow work**",
            "work grows 16×",
            "does not wait times the launch",
            "0.0400 to 0.160 ms from 256 to",
            "times impossible, from 4 096 tokens on, and none of the",
            "Compiled, plain attention is 2.0× as fast in forward at 32 768",
            "from 32 768 tokens plain, softmax by hand (out of memory in",
        ),
        ("do not follow", "sees the work", "No setting failed"),
    )


def test_the_story_of_plain_attention_the_other_way(tmp_path):
    def turned(point):
        made = times(point)
        slow = made | {"unsynchronised": made["forward"], "backward": 1e-5}
        return {name: ms / (0.5 if point.implementation == "compiled" else 1) for name, ms in slow.items()}

    plan = full(Plain, sequences=(1024, 4096), **COMPILED)
    table = tables.plain(written(tmp_path / "run", plan, time=turned, failed=lambda point: False))
    said(
        explain_plain(table),
        (
            "plain attention in backward",
            "do not follow it",
            "sees the work",
            "0 of this clock's",
            "**18 of the",
            "as fast in forward at 4 096 and 2.0× as slow in backward at 4 096",
            "No setting failed, up to 4 096",
        ),
        ("times the launch", "none of the", "Not measured"),
    )


def test_the_story_of_plain_attention_on_a_cpu(runs):
    said(explain_plain(tables.plain(runs["plain_small"])), ("No limit is known", "This run is small"), "impossible")


def story(run):
    return explain_memory(tables.held(run), tables.limit(run))


def test_the_story_of_memory(runs):
    said(
        story(runs["memory"]),
        (
            f"plain, softmax by hand 2.00 (exp(S − max) and P), plain attention 1.00 (P) and {OURS} 0 (nothing N×N)",
            f"{OURS} as N^1.00",
            "Our FlashAttention is linear",
            "agree with the formulas within 1 %.",
            "Plain, softmax by hand fails at 32 768",
            "backward needs 6",
            "the GPU has 140 GiB, enough for 27 9",
            f"{OURS} to 65 536 (1.01 GiB)",
        ),
        ("by formula 2", "not linear", "would fit", "a CPU"),
    )
    said(story(runs["plain"]), "plain, compiled 1.00", "plain, compiled 1.00 (")


def test_the_story_of_memory_the_other_way(tmp_path):
    def more(point, row):
        square = 2 * point.heads * point.sequence**2
        return row | {"kept_bytes": row["kept_bytes"] + square, "held_mib": row["held_mib"] + square / MIB}

    short = full(Memory, sequences=(1024, 4096, 16384))
    early = written(tmp_path / "early", short, change=more, failed=lambda point: point.sequence > 4096)
    said(
        story(early),
        (
            "plain attention 2.00 (**by formula 1**)",
            f"{OURS} is not linear",
            "measured sizes 12 agree",
            "the largest difference is",
            "**that would fit** in the GPU's 140 GiB: something else",
        ),
        ("FlashAttention is linear", "formulas within 1 %.", "enough for", "These did not fail"),
    )


@pytest.mark.parametrize(("squares", "end"), [(5, "here 160 GiB, too much."), (4.2, "here 134 GiB.")])
def test_what_torch_set_aside_may_not_fit_where_the_formula_does(tmp_path, squares, end):
    plan = full(Plain, implementations=("plain",), sequences=(8192, 16384, 32768), head_dims=(64,))

    def aside(point, row):
        return row | {"reserved_mib": squares * 8 * 4 * point.sequence**2 / MIB}

    run = written(tmp_path / "run", plan, change=aside, failed=lambda point: point.sequence == 32768)
    said(story(run), ("**that would fit**", f"had set aside {squares:.2f}".rstrip("0").rstrip("."), end), "something")


def test_the_story_of_memory_on_a_cpu(runs):
    said(
        story(runs["memory_small"]),
        (
            f"{OURS} 0 (nothing N×N)",
            "All 9 measured sizes agree with the formulas within 1 %; on a CPU only",
            f"{OURS} to 64",
            "This run is small",
        ),
        ("fails", "by formula 2"),
    )


def test_the_story_of_errors(tmp_path):
    good = explain_errors(tables.errors(errors_run(tmp_path / "good", worst=0.008)))
    said(
        good,
        (
            f"within the tolerance of float64**: tiles in PyTorch (9 shapes) and {OURS} (10 shapes)",
            "80 % of 0.01",
            "returns the same bits",
        ),
        ("Beyond", "other bits"),
    )
    bad = explain_errors(tables.errors(errors_run(tmp_path / "bad", worst=0.02, same=False)))
    said(
        bad,
        (
            f"**Beyond the tolerance**: dK of {OURS} in bfloat16 (0.0200, at 1 × 1000 × 16)",
            f"**A second run returns other bits**: {OURS} in bfloat16",
        ),
        ("is within", "the same bits"),
    )
