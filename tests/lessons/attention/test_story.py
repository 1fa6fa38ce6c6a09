"""Lab 08's verdicts, on tables where each holds and where it does not; its charts, of runs here and recorded."""

import re

import figures
import pytest
from figures import checked
from made import said
from made_attention_runs import erring, plain_ms, raced, timed, weighed

from labkit.engine.recordings import replay
from labkit.tables.published import published
from labkit.theory.sizes import MIB
from lessons import attention
from lessons.attention.plan import Memory, Plain, Race, Sweep
from lessons.attention.tables import memory, speed

GPU = {"device": "cuda", "gpus": 1}


@pytest.fixture(autouse=True)
def positions_are_a_unit(monkeypatch):
    monkeypatch.setattr(figures, "UNITS", (*figures.UNITS, "positions"))


@pytest.fixture(scope="module")
def recorded():
    return {name: replay(path) for name, path in attention.RECORDED.items()}


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """Give small runs on a CPU."""
    folder, cpu = tmp_path_factory.mktemp("here"), {"device": "cpu", "seeds": (0,)}
    return {
        "memory": weighed(folder / "memory", Memory.small(**cpu)),
        "plain": weighed(
            folder / "plain", Plain.small(**cpu), ms=lambda p: plain_ms(p) | {"unsynchronised": plain_ms(p)["forward"]}
        ),
        "race": timed(folder / "race", Race.small(**cpu)),
        "sweep": timed(folder / "sweep", Sweep.small(**cpu)),
        "errors": erring(folder / "errors"),
    }


def both(table, here, recorded):
    name = {
        memory.held: "memory",
        memory.plain: "plain",
        memory.errors: "errors",
    }.get(table, table.__name__)
    return table(here[name]), table(recorded[name])


def names_the_gpus(told, *runs):
    """Assert that a table which stands beside those of another recorded machine says on which GPU it was measured."""
    assert all(run.source in told.data for run in runs)


def test_who_fits(recorded):
    table = memory.held(recorded["memory"])
    said(attention.who_fits(table), "At 65 536 positions plain attention runs out of memory; FlashAttention needs 524")
    said(attention.who_fits(table.assign(status="ok")), "runs at all lengths**, up to 65 536")
    nothing = table.assign(backward_mib=float("nan"))
    said(attention.who_fits(nothing), "so does FlashAttention", "MiB")


def test_matrices(here, recorded, tmp_path):
    tables = both(memory.held, here, recorded)
    good = attention.matrices(*tables)
    said(good, ("keeps 1 N×N matrix and has 4 in backward; FlashAttention has 0.** ✔", "27 911"), "✘")
    said(good, ("| plain attention | 96 | 1 | 3 | – | – |", "| plain attention | 32 768 | 1 | 4 | 65 536 | 34 129 |"))

    def more(point, row):
        square = point.heads * point.sequence**2 * 2 / MIB
        return row | {"backward_mib": row["backward_mib"] + square} if point.implementation == "flash" else row

    odd = memory.held(weighed(tmp_path, Memory.full(**GPU, sequences=(1024, 2048)), change=more))
    said(attention.matrices(odd), ("FlashAttention has 1.**", "✘ Other than by the formulas: our FlashAttention"), "✔")


def test_clock_waits(here, recorded, tmp_path):
    small, full = both(memory.plain, here, recorded)
    said(
        attention.clock_waits(small, full),
        (
            "does not see the work: it shows 0.103 ms where forward takes 21.0 ms",
            "where the clocks differ, it is noise",
            "25 of 43 are",
            "| 0.14× as fast as plain at 256 positions, 1.1× at 16 384 |",
        ),
    )
    names_the_gpus(attention.clock_waits(small, full), recorded["plain"])
    fast = weighed(tmp_path, Plain.full(**GPU), ms=lambda p: dict.fromkeys(plain_ms(p), 1e-4))
    table = memory.plain(fast)
    said(attention.clock_waits(table, table), ("sees the work: it shows", "60 are shorter", "compiled"), "does not see")


def test_exact(recorded, tmp_path):
    table = memory.errors(recorded["errors"])
    said(
        attention.exact(table, table),
        ("✔ **Every tensor is within", "the same bits", "83 %", "ours, for Hopper"),
        ("✘", "other bits"),
    )
    hoppers = table.assign(implementation="hopper", same_bits=False)
    said(
        attention.exact(table, hoppers),
        "the same bits but for dQ of the kernels for Hopper.",
        ("other bits", "hold none"),
    )
    bad = memory.errors(erring(tmp_path, worst=0.02, same=False))
    said(attention.exact(bad, table), ("✘ **Beyond the tolerance of float64**: dK of our", "gives other bits"), "✔")


@pytest.mark.parametrize(
    ("changed", "parts", "unsaid"),
    [
        ({}, ("Here: on the GPU", "is never slower than SDPA-flash", "waits for the host"), "as slow as"),
        ({"flash_ms": 0.05}, ("is never slower than SDPA-flash", "it is never slower, either"), "waits"),
        ({"flash": 4e-8}, ("is up to 1.3× as slow as SDPA-flash", "Launched, ours takes up to"), ("waits", "never")),
    ],
)
def test_host_or_kernel(recorded, tmp_path, changed, parts, unsaid):
    table = speed.race(raced(tmp_path, **changed))
    said(attention.host_or_kernel(table, speed.race(recorded["race"])), parts, unsaid)


def test_an_interpreter_is_no_gpu(here, recorded):
    said(
        attention.host_or_kernel(*both(speed.race, here, recorded)),
        ("nothing about a GPU", "**Recorded: on the GPU", "cuDNN is up to 1.6× as fast as ours"),
    )
    told = attention.gain(*both(speed.sweep, here, recorded))
    said(told, ("Recorded: forward and backward together", "0.27 to 27× as fast as plain attention"), "Here:")
    head, *rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in told.data.split("\n\n")[1].splitlines()]
    assert head[0].startswith("positions")
    gains = {row[0]: dict(zip(head, row, strict=True)) for row in rows[1:]}
    assert len(gains) == 10 and len(head) == 9
    assert (gains["65 536"]["bfloat16, d = 16"], gains["4 096"]["float32, d = 128"]) == ("27×", "0.27×")
    assert gains["65 536"]["float32, d = 16"] == "out of memory"
    names_the_gpus(told, recorded["sweep"])


def test_a_race_is_told_of_forward_and_backward_together_as_its_chart_draws_it(recorded):
    race = speed.race(recorded["race"])
    slow = race["ms"].where((race["phase"] == "both") | (race["implementation"] != "flash"), 100 * race["ms"])
    slower = race.assign(ms=slow, versus=race["versus"] * slow / race["ms"])
    told = [attention.host_or_kernel(table, table).data for table in (race, slower)]
    assert told[0] == told[1]


def test_where_computing_scores_again_gained_and_where_it_lost(recorded):
    both = speed.sweep(recorded["sweep"]).query("phase == 'both'")
    assert (both.query("precision == 'bfloat16' and sequence >= 8192")["speed_up"].dropna() > 1).all()
    wide = both.query("precision == 'float32' and head_dim == 128").dropna(subset="speed_up")
    assert wide[wide["speed_up"] < 1]["sequence"].tolist() == [1024, 2048, 4096, 8192, 16384]


def test_the_gain_is_this_runs_where_a_gpu_ran_it(recorded, tmp_path):
    plan = Sweep(device="cuda", sequences=(128, 512, 2048))
    grows = timed(tmp_path, plan, lambda point: 1e-6 * point.sequence**2)
    told = attention.gain(speed.sweep(grows), speed.sweep(recorded["sweep"]))
    said(told, ("Here: ", "is 1.0× as fast as plain attention"), "Recorded")


def test_the_kernels_for_hopper_stand_beside_the_others(here, recorded, tmp_path):
    told = attention.one_generation(*both(speed.race, here, recorded)).data
    ms = [float(figure) for figure in re.findall(r"([0-9.]+) ms", told)]
    assert told.startswith("**Recorded") and 0 < ms[0] < ms[1]
    assert "| ours, for Hopper | 16.3 | 38.8 | 56.3 |" in told and "| our FlashAttention | 19.5 | 52.0 | 71.4 |" in told
    assert "is saved in backward" in told
    race = speed.race(recorded["race"])
    slow_forward = race.assign(
        ms=race["ms"].where((race["implementation"] != "flash") | (race["phase"] != "forward"), 10 * race["ms"])
    )
    assert "is saved in forward" in attention.one_generation(slow_forward, race).data
    said(
        attention.one_generation(speed.race(raced(tmp_path)), speed.race(recorded["race"])),
        "Here, at the longest sequence",
    )


def test_in_one_minute(here, recorded):
    table = attention.in_one_minute(here, recorded)
    said(
        table,
        (
            "plain 3, ours 0 | N×N matrices in backward: plain 4, ours 0",
            "not measured | 13× as fast as plain, with 16 heads in bfloat16 at 16 384 positions (NVIDIA H200)",
            "largest error of our FlashAttention, tiles in PyTorch and ours, for Hopper: 83 % of the tolerance |",
            "not measured | at 1 024 positions a replay, cache warm, takes 14 % of a launched call",
            "cache cleared (NVIDIA H200)",
            "CPUs: not compared",
            "it shows 0.49 % of forward (NVIDIA H100 80GB HBM3)",
        ),
    )
    assert table.data.count("not measured") == 2


def test_charts(here, recorded):
    held, plain, race = (both(table, here, recorded) for table in (memory.held, memory.plain, speed.race))
    guessed = checked(attention.memory_chart(*held, guess=30000.0))
    assert [line.get_ydata() for ax in guessed.axes for line in ax.lines if line.get_label() == "your prediction"] == [
        [30000.0]
    ]
    checked(attention.memory_chart(held[1], moments=("kept",)))
    assert len(checked(attention.plain_chart(*plain)).axes) == 2
    assert len(checked(attention.race_chart(*race)).axes) == 2, "an interpreter's times are not drawn"
    for table, chart in ((held, attention.memory_chart), (plain, attention.plain_chart), (race, attention.race_chart)):
        checked(chart(table[1]))
    printed = checked(attention.attention_chart(attention.printed_times(published("attention"))))
    for ax in printed.axes:
        under, over = (
            next(line for line in ax.lines if line.get_label() == f"{kind}, second table")
            for kind in ("eager", "compiled")
        )
        assert under.get_markersize() > over.get_markersize() and under.get_linewidth() > over.get_linewidth()
        assert under.get_zorder() < over.get_zorder(), "they are as good as equal: the wider one lies below"


def test_a_run_with_fewer_settings_than_the_recorded_one_has_fewer_panels(recorded, tmp_path):
    race = timed(tmp_path / "race", Race.small(**GPU, seeds=(0,)))
    assert len(checked(attention.race_chart(speed.race(race), speed.race(recorded["race"]))).axes) == 3
