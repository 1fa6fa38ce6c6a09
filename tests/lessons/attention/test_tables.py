"""Lab 08's tables: memory as an H200 measured it, times beside the rival and the limit, floors and errors."""

import math

import pandas as pd
import pytest
from made_attention_runs import NO_MEMORY, erring, made, time_ms, timed, weighed, weight

from labkit.engine.recordings import replay
from labkit.provenance import fact
from labkit.tables.goals import scorecard_of
from labkit.tables.published import published
from labkit.theory.sizes import MIB
from lessons import attention
from lessons.attention.plan import Memory, Plain, Race, Sweep
from lessons.attention.tables import memory, speed
from lessons.attention.theory import MOMENTS, moment_bytes

GPU = {"device": "cuda", "gpus": 1}


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


def test_plain_gives_every_setting_its_times_and_verdicts(tmp_path):
    run = weighed(tmp_path, Plain.full(**GPU), failed=lambda p: p.implementation == "by_hand" and p.sequence > 8192)
    table = memory.plain(run)
    assert len(table) == 5 * 4 * 3
    row = at(table, implementation="plain", head_dim=64, sequence=16384)
    assert (row["forward_ms"], row["backward_ms"], row["unsynchronised_ms"]) == (16, 40, 0.08)
    assert list(row[["forward_verdict", "backward_verdict", "unsynchronised_verdict"]]) == ["ok", "ok", "impossible"]
    assert at(table, implementation="plain", head_dim=64, sequence=256)["unsynchronised_verdict"] == "ok"
    close = at(table, implementation="by_hand", head_dim=16, sequence=4096)
    assert close["backward_least_ms"] < close["unsynchronised_ms"] < close["forward_least_ms"]
    assert close["unsynchronised_verdict"] == "impossible", "it is judged as a forward's time"
    gone = at(table, implementation="by_hand", head_dim=64, sequence=16384)
    assert (gone["status"], gone["forward_verdict"]) == ("out of memory", "not measured")


def test_a_phase_before_the_one_that_runs_out_of_memory_is_kept(tmp_path):
    plan = Plain.full(**GPU, implementations=("plain",), sequences=(1024,), head_dims=(16,))
    point = plan.points()[0]
    told = [{"phase": "memory"} | weight(point), {"phase": "forward", "ms": 1.0}, NO_MEMORY]
    table = memory.plain(made(tmp_path, plan, [(0, vars(point) | row) for row in told]))
    assert (table["status"].item(), table["forward_ms"].item()) == ("out of memory", 1.0)


def test_held_counts_matrices_and_growth(tmp_path):
    plan, gone = Memory.full(**GPU), lambda point: point.implementation == "by_hand" and point.sequence > 16384
    table = memory.held(weighed(tmp_path / "as due", plan, failed=gone))
    rows = {name: at(table, implementation=name, sequence=16384) for name in ("plain", "by_hand", "flash")}
    for name, squares in (("plain", (1, 2, 1, 4)), ("by_hand", (2, 3, 2, 6)), ("flash", (0, 0, 0, 0))):
        for ending in ("squares", "due"):
            assert tuple(rows[name][f"{moment}_{ending}"] for moment in MOMENTS) == pytest.approx(squares)
    assert rows["flash"]["exponent"] == pytest.approx(1) and rows["plain"]["exponent"] == pytest.approx(1.98, abs=0.01)
    assert (rows["plain"]["fits"], rows["by_hand"]["fits"]) == (34129, 27911)
    assert at(table, implementation="by_hand", sequence=32768)[["kept_mib", "exponent"]].isna().all()

    def more(point, row):
        return row | {"kept_bytes": row["kept_bytes"] + 2 * point.heads * point.sequence**2}

    odd = at(memory.held(weighed(tmp_path / "more", plan, change=more)), implementation="flash", sequence=4096)
    assert (odd["kept_squares"], odd["kept_due"]) == (1, 0)
    compiled = Plain.full(**GPU, implementations=("compiled",), sequences=(4096,), head_dims=(64,))
    row = memory.held(weighed(tmp_path / "compiled", compiled)).iloc[0]
    assert math.isnan(row["kept_formula_mib"]) and row["held_squares"] == 1


def test_a_cpu_has_no_limit_and_one_matrix_less(tmp_path):
    table = memory.plain(weighed(tmp_path / "plain", Plain.small(device="cpu")))
    assert set(table["forward_verdict"]) | set(table["unsynchronised_verdict"]) == {"no limit known"}
    held = memory.held(weighed(tmp_path / "memory", Memory.small(device="cpu")))
    assert held["fits"].isna().all() and math.isnan(fact(held, "gpu_mib"))
    assert at(held, implementation="plain", sequence=64)["backward_squares"] == 3
    assert (held["backward_squares"] == held["backward_due"]).all()


def test_errors_gives_the_worst_of_all_shapes(tmp_path):
    table = memory.errors(erring(tmp_path, worst=0.008, same=False))
    row = at(table, implementation="flash", precision="bfloat16", tensor="dK")
    assert (row["worst"], row["shapes"], row["same_bits"], row["shape"]) == (0.008, 10, False, "1 × 1000 × 16")
    assert row["share"] == pytest.approx(0.8)
    assert at(table, implementation="tiled", precision="float32", tensor="O")["same_bits"]


def long(*reached):
    return lambda p: reached if p.implementation == "plain" and p.sequence == 65536 else None


OURS = {"head_dim": 64, "sequence": 16384, "phase": "both", "clock": "launched", "implementation": "flash"}


def test_race_sets_every_time_beside_the_rival_and_the_limit(tmp_path):
    table = speed.race(timed(tmp_path, Race(device="cuda")))
    row = at(table, **OURS)
    assert row["versus"] == pytest.approx(row["ms"] / at(table, **OURS | {"implementation": "sdpa_flash"})["ms"])
    assert row["verdict"] == "ok" and row["tflops"] == pytest.approx(row["share_of_peak"] * 989.5)
    assert (fact(table, "interpreted"), fact(table, "rival")) == (False, "sdpa_flash")
    backward = at(table, **OURS | {"sequence": 1024, "phase": "backward", "clock": "captured"})
    assert backward["ms"] == pytest.approx(0.75 * 2e-8 * 1024**2)
    assert pd.isna(backward["low_ms"])
    assert table["phase"].tolist() == ["forward", "backward", "both"] * (len(table) // 3)


@pytest.mark.parametrize("reached", [(), ("forward",)])
def test_a_point_out_of_memory_has_a_row_for_each_phase_that_it_did_not_reach(tmp_path, reached):
    table = speed.race(timed(tmp_path, Race(device="cuda"), failed=long(*reached)))
    gone = table.query("implementation == 'plain' and sequence == 65536 and head_dim == 64")
    assert gone["phase"].tolist() == ["forward", "backward", "both"]
    assert gone["status"].tolist() == ["ok"] * len(reached) + ["out of memory"] * (3 - len(reached))
    assert gone["verdict"].tolist()[-1] == "not measured"


def test_race_on_a_cpu_has_plain_for_a_rival_and_no_limit(tmp_path):
    table = speed.race(timed(tmp_path, Race.small(device="cpu")))
    assert (fact(table, "rival"), fact(table, "interpreted")) == ("plain", True)
    assert set(table["verdict"]) == {"no limit known"}
    assert (table.loc[table["implementation"] == "plain", "versus"] == 1).all()


@pytest.mark.parametrize(("kind", "table"), [(Race, speed.race), (Sweep, speed.sweep)])
def test_every_seed_counts_and_none_adds_rows(tmp_path, kind, table):
    """Gives the first seed 1 time, the second 3 times and the third 2 times what a setting takes: the median is 2."""
    plans = [kind(device="cuda", seeds=seeds, sequences=(1024, 2048)) for seeds in ((0,), (0, 1, 2))]
    times = {0: 1, 1: 3, 2: 2}
    alone, repeated = (
        table(timed(tmp_path / str(len(plan.seeds)), plan, lambda point: times[point.seed] * time_ms(point)))
        for plan in plans
    )
    name = "ms" if "ms" in alone else "flash_ms"
    assert (repeated[name] / alone[name]).tolist() == pytest.approx([2] * len(alone))


def test_sweep(tmp_path):
    run = timed(tmp_path, Sweep(device="cuda"), failed=long("forward"))
    table, where = speed.sweep(run), {"precision": "bfloat16", "head_dim": 64, "phase": "both"}
    row = at(table, **where, sequence=16384)
    assert row["speed_up"] == pytest.approx(row["plain_ms"] / row["flash_ms"])
    gone = at(table, **where, sequence=65536)
    assert gone["plain_status"] == "out of memory" and pd.isna(gone["speed_up"])


def test_one_check_flags_the_published_launches_and_our_own_and_passes_what_was_waited_for():
    runs = {name: replay(path) for name, path in attention.RECORDED.items()}
    times = attention.printed_times(published("attention"))
    flagged = times[times["verdict"] == "impossible"]
    assert set(flagged["phase"]) == {"forward"} and len(flagged) == 32
    ours = memory.plain(runs["plain"])
    assert (ours["unsynchronised_verdict"] == "impossible").sum() > 10
    waited = [ours["forward_verdict"], ours["backward_verdict"], speed.race(runs["race"])["verdict"]]
    assert "impossible" not in set(pd.concat(waited))


def test_the_scorecard_holds_goals_met_and_missed():
    runs = map(replay, attention.RECORDED.values())
    rows = [row for run in runs for row in scorecard_of(run).itertuples()]
    card, measured = ({row.figure: getattr(row, name) for row in rows} for name in ("met", "measured"))
    assert measured["launched over SDPA-flash, where it is slowest"] == pytest.approx(2.113), "hopper's, not flash's"
    both = {f"forward + backward, {shape}, causal" for shape in ("N 16 384, d 64", "N 4 096, d 64", "N 16 384, d 128")}
    missed = {*both, "launched over SDPA-flash, where it is slowest"}
    assert {name for name, met in card.items() if not met} == missed and len(card) == 9
