"""Lab 08's races, sweeps and tiles: tables from made runs, charts that keep apart, sentences for either outcome."""

import figures
import pandas as pd
import pytest
from figures import checked
from made import CPU, gpu_node, said, write_run

from labkit.provenance import fact
from labkit.story.names import ATTENTION_NAMES
from lessons.attention.charts import speed as charts
from lessons.attention.plan import Race, Sweep, Tuning
from lessons.attention.story import speed as story
from lessons.attention.tables import speed as tables

SWEPT = {"device": "cuda", "sequences": (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)}
NAN, H200 = float("nan"), "NVIDIA H200"
SHARES = {"forward": 0.25, "backward": 0.75, "both": 1.0}
PER_TOKEN_PAIR = {"plain": 2e-7, "tiled": 9e-7, "flash": 2e-8, "sdpa_flash": 3e-8, "sdpa_cudnn": 1.5e-8}
LAUNCHING_MS = {"flash": 0.3, "sdpa_flash": 0.1}


def time_ms(point) -> float:
    """Give forward and backward together: the GPU's time goes with the work, and launching is added to it."""
    width = point.head_dim / 64 * (12 if point.precision == "float32" else 1)
    alone = PER_TOKEN_PAIR[point.implementation] * point.sequence**2 * width
    return (
        alone
        if getattr(point, "clock", "launched") == "captured"
        else alone + LAUNCHING_MS.get(point.implementation, 0.2)
    )


def run_of(folder, plan, ms=time_ms, failed=lambda point: None, gpu=H200):
    """Write a run of a plan; `failed` gives the phases that a point reached before memory was full, None if it fits."""
    rows = []
    for point in plan.points():
        captured, reached = getattr(point, "clock", "") == "captured", failed(point)
        for phase, share in SHARES.items():
            if not (captured and phase == "backward") and phase in (SHARES if reached is None else reached):
                value = share * ms(point)
                told = {"phase": phase, "ms": value, "low_ms": 0.9 * value, "high_ms": 1.1 * value, "repeats": 9}
                rows.append((0, vars(point) | told))
        if reached is not None:
            rows.append((0, vars(point) | {"status": "out of memory"}))
    return write_run(folder, plan, gpu_node(1, gpu) if plan.device == "cuda" else CPU, rows)


def tuned(folder, ms):
    """Write a run of Tuning; `ms` gives a candidate's time by kernel, sequence and tile."""
    plan, rows = Tuning(device="cuda"), []
    for point in plan.points():
        for kernel in ("forward", "keys_values", "queries"):
            times = {tile: ms(kernel, point.sequence, tile) for tile in ("64×64", "128×64")}
            best = min((tile for tile in times if times[tile]), key=times.get)
            rows += [
                (0, vars(point) | {"kernel": kernel, "tile": tile, "ms": value, "chosen": tile == best})
                for tile, value in times.items()
            ]
    return write_run(folder, plan, gpu_node(1), rows)


def is_long(point):
    return () if point.implementation == "plain" and point.sequence == 65536 else None


def partly(point):
    return ("forward",) if point.implementation == "plain" and point.sequence == 65536 else None


@pytest.fixture(autouse=True)
def rates_are_units(monkeypatch):
    monkeypatch.setattr(figures, "UNITS", (*figures.UNITS, "FLOP/s", "tokens"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("speed")
    small = {"device": "cpu"}
    return {
        "race": run_of(folder / "race", Race(device="cuda"), failed=is_long),
        "partly": run_of(folder / "partly", Race(device="cuda"), failed=partly),
        "unknown": run_of(folder / "unknown", Race(device="cuda"), gpu="NVIDIA Unknown"),
        "small race": run_of(folder / "small race", Race.small(**small)),
        "sweep": run_of(folder / "sweep", Sweep(**SWEPT)),
        "full": run_of(folder / "full", Sweep(**SWEPT), failed=partly),
        "small sweep": run_of(folder / "small sweep", Sweep.small(**small)),
        "tuning": tuned(folder / "tuning", lambda kernel, n, tile: 1.0 if (n > 1024) == (tile == "64×64") else 1.2),
        "unfit": tuned(folder / "unfit", lambda kernel, n, tile: 1.0 if tile == "64×64" else None),
        "small tuning": write_run(
            folder / "small tuning",
            Tuning.small(**small),
            CPU,
            [
                (0, vars(point) | {"kernel": kernel, "tile": "32×16", "chosen": True})
                for point in Tuning.small(**small).points()
                for kernel in ("forward", "keys_values", "queries")
            ],
        ),
    }


def cell(table, **where):
    """Give the one row that has these values."""
    for name, value in where.items():
        table = table[table[name] == value]
    (row,) = table.to_dict("records")
    return row


TARGET = {"head_dim": 64, "sequence": 16384, "phase": "both", "clock": "launched", "implementation": "flash"}


def test_race_sets_every_time_beside_the_rival_and_the_limit(runs):
    table = tables.race(runs["race"])
    row = cell(table, **TARGET)
    assert row["versus"] == pytest.approx(row["ms"] / cell(table, **TARGET | {"implementation": "sdpa_flash"})["ms"])
    assert row["verdict"] == "ok"
    assert row["tflops"] == pytest.approx(row["share_of_peak"] * 989.5)
    told = {"source": runs["race"].source, "small": False, "interpreted": False, "rival": "sdpa_flash"}
    assert {name: fact(table, name) for name in told} == told
    backward = cell(table, **TARGET | {"sequence": 1024, "phase": "backward", "clock": "captured"})
    assert backward["ms"] == pytest.approx(0.75 * 2e-8 * 1024**2)
    assert pd.isna(backward["low_ms"])
    assert table["phase"].tolist() == ["forward", "backward", "both"] * (len(table) // 3)


@pytest.mark.parametrize(("kind", "table"), [(Race, tables.race), (Sweep, tables.sweep)])
def test_every_seed_counts_and_none_adds_rows(tmp_path, kind, table):
    """Gives the first seed 1 time, the second 3 times and the third 2 times what a setting takes: the median is 2."""
    plans = [kind(device="cuda", seeds=seeds, sequences=(1024, 2048)) for seeds in ((0,), (0, 1, 2))]
    times = {0: 1, 1: 3, 2: 2}
    alone, repeated = (
        table(run_of(tmp_path / str(len(plan.seeds)), plan, lambda point: times[point.seed] * time_ms(point)))
        for plan in plans
    )
    assert len(repeated) == len(alone)
    name = "ms" if "ms" in alone else "flash_ms"
    assert (repeated[name] / alone[name]).tolist() == pytest.approx([2] * len(alone))


@pytest.mark.parametrize(("name", "reached"), [("race", 0), ("partly", 1)])
def test_a_point_out_of_memory_has_a_row_for_each_phase_that_it_did_not_reach(runs, name, reached):
    table = tables.race(runs[name])
    gone = table[(table["implementation"] == "plain") & (table["sequence"] == 65536) & (table["head_dim"] == 64)]
    assert gone["phase"].tolist() == ["forward", "backward", "both"]
    assert gone["status"].tolist() == ["ok"] * reached + ["out of memory"] * (3 - reached)
    assert gone["verdict"].tolist()[-1] == "not measured"


def test_race_on_a_cpu_has_plain_for_a_rival_and_no_limit(runs):
    table = tables.race(runs["small race"])
    assert fact(table, "rival") == "plain"
    assert fact(table, "interpreted")
    assert set(table["verdict"]) == {"no limit known"}
    assert (table.loc[table["implementation"] == "plain", "versus"] == 1).all()


def test_sweep_and_floor(runs):
    table = tables.sweep(runs["full"])
    row = cell(table, precision="bfloat16", head_dim=64, sequence=16384, phase="both")
    assert row["speed_up"] == pytest.approx(row["plain_ms"] / row["flash_ms"])
    gone = cell(table, precision="bfloat16", head_dim=64, sequence=65536, phase="both")
    assert (gone["plain_status"], gone["flash_status"]) == ("out of memory", "ok")
    assert pd.isna(gone["speed_up"])
    floor = cell(tables.floor(runs["sweep"]), implementation="flash", precision="bfloat16", phase="both")
    assert floor["until"] == 4096  # 0.3 ms of launching + 2e-8 × 4096² × 16/64
    assert floor["work"] == pytest.approx(1024, rel=0.01)
    assert floor["floor_ms"] == pytest.approx(0.3, rel=0.01)
    assert floor["share_of_limit"] < 1e-4


def test_tiles_are_set_beside_the_fastest(runs):
    table = tables.tiles(runs["tuning"])
    assert sorted(set(table["slower_than_best"])) == [1.0, 1.2]
    assert (table["slower_than_best"] == 1).equals(table["chosen"])
    assert tables.tiles(runs["unfit"])["slower_than_best"].isna().sum() == 12
    assert tables.tiles(runs["small tuning"])["ms"].isna().all()


@pytest.mark.parametrize("name", ["sweep", "full", "small sweep"])
def test_sweep_chart(runs, name):
    figure = checked(charts.sweep_chart(tables.sweep(runs[name])))
    assert len(figure.axes) == (1 if name == "small sweep" else 2)
    assert ("out of memory" in [text.get_text() for text in figure.legends[0].get_texts()]) == (name == "full")
    for ax in figure.axes:  # where not every length can be named, the longest is
        assert ax.get_xticklabels()[0].get_text() == ("65 536" if name != "small sweep" else "48")


def raced(folder, **changed):
    """Give the race's table of a run with other costs: per pair of tokens, or of launching (a name ending in _ms)."""

    def ms(point):
        name, captured = point.implementation, point.clock == "captured"
        alone = changed.get(name, PER_TOKEN_PAIR[name]) * point.sequence**2 * point.head_dim / 64
        return alone if captured else alone + changed.get(f"{name}_ms", LAUNCHING_MS.get(name, 0.2))

    return tables.race(run_of(folder / "run", Race(device="cuda", **changed.get("plan", {})), ms))


NEVER, SLOWER = "is **never slower than SDPA-flash**", "**is slower than SDPA-flash**"
HOST, KERNEL, UNTOLD = "the host is slow, not the kernel", "the kernel is slow", "there is no captured clock"
OURS = ATTENTION_NAMES["flash"]


@pytest.mark.parametrize(
    ("changed", "parts", "unsaid"),
    [
        (
            {},
            (
                f"**captured** clock {OURS} {NEVER}",
                f"**launched** clock {OURS} {SLOWER} in 15 of 36",
                HOST,
                "is missed by",
                "d = 64 at 1 024 (forward) the GPU works 0.00524 of 0.0802 ms",
                "8 192 tokens the clocks differ by at most 22 %",
            ),
            (KERNEL, UNTOLD),
        ),
        (
            {"flash_ms": 0.1},
            (f"**captured** clock {OURS} {NEVER}", f"**launched** clock {OURS} {NEVER}"),
            (SLOWER, HOST, KERNEL),
        ),
        ({"flash": 4e-8}, (f"**captured** clock {OURS} {SLOWER} in 24 of 24", KERNEL, UNTOLD, "1.3×"), (NEVER, HOST)),
        (
            {"plan": {"captured": 0}},
            (SLOWER, "For 15 of these there is no captured clock"),
            (HOST, KERNEL),
        ),
        ({"flash": 1e-8, "flash_ms": 0.2}, ("is met, 28 % below", f"{OURS} 2.88 ms", f"{OURS} in 9 of 12"), "missed"),
        ({"flash": 1e-8, "flash_ms": 0.0}, (f"(launched clock)**: {OURS} in 12 of 12 settings", NEVER), SLOWER),
        ({"flash": 1e-9, "flash_ms": 0.0}, ("times are shorter than this GPU allows",), "No time is shorter"),
        ({"plan": {"sequences": (64,)}}, ("target's setting was not measured", "measured beside SDPA-flash"), NEVER),
    ],
)
def test_explain_race(tmp_path, changed, parts, unsaid):
    said(story.explain_race(raced(tmp_path, **changed)), parts, unsaid)


def test_explain_race_without_a_limit_and_in_an_interpreter(runs):
    said(story.explain_race(tables.race(runs["unknown"])), "No limit of this GPU is known", "peak")
    said(story.explain_race(tables.race(runs["small race"])), ("nothing about the kernel", "small"), "Fastest")


@pytest.mark.parametrize("name", ["race", "partly", "unknown", "small race"])
def test_race_charts(runs, name):
    table = tables.race(runs[name])
    panels = 1 if name == "small race" else 2
    for phase in ("forward", "both") if name == "partly" else ("both",):
        figure = checked(charts.race_chart(table, phase))
        names = [text.get_text() for text in figure.legends[0].get_texts()]
        assert len(figure.axes) == panels
        assert ("captured clock" in names) == (name != "small race")
        assert ("out of memory" in names) == (name == "race" or (name, phase) == ("partly", "both"))
        assert any("peak" in text.get_text() for text in figure.axes[0].texts) == (name in ("race", "partly"))


def test_explain_floors(runs, tmp_path):
    table, floors = tables.sweep(runs["sweep"]), tables.floor(runs["sweep"])
    said(
        story.explain_sweep(table, floors),
        (
            f"| {OURS}, bfloat16 | 0.300 ms | 4 096 tokens | 1 016× |",
            "do not follow the work",
            "launch-bound.**",
        ),
        "| – |",
    )
    grows = run_of(tmp_path / "grows", Sweep(**SWEPT), lambda point: 1e-6 * point.sequence**2)
    said(story.explain_sweep(table, tables.floor(grows)), ("ms | – | – |", "backward follow the work"), "launch-bound")
    busy = floors.assign(share_of_limit=0.6)
    said(story.explain_sweep(table, busy), "needs at most 60 % of the least time.", "launch-bound")
    unknown = floors.assign(share_of_limit=NAN)
    said(story.explain_sweep(table, unknown), "No limit of this GPU is known", "launch-bound")


def test_explain_sweep(runs, tmp_path):
    table, floors = tables.sweep(runs["sweep"]), tables.floor(runs["sweep"])
    none = "**slower in none of 80 settings**"
    said(
        story.explain_sweep(table, floors),
        (
            f"{OURS} is at most 10× (forward, float32, d = 128 at 65 536) as fast",
            "Neither runs out of memory up to 65 536",
            "bfloat16, d = 16 at 128, 256, 512 and 1 024",
            "times bfloat16's time. Three TF32 products",
            "6.0×",
            "does not explain all",
        ),
        (none, "nowhere", "runs out of memory:"),
    )
    full = story.explain_sweep(tables.sweep(runs["full"]), floors)
    said(full, "Plain attention runs out of memory: float32, d = 16 at 65 536; float32, d = 32 at 65 536", "Neither")
    quick = table.assign(flash_ms=0.5 * table["plain_ms"], speed_up=2.0)
    said(story.explain_sweep(quick, floors), (none, "at most 2.0×"), "slower in 1")
    slow = table.assign(flash_ms=2 * table["plain_ms"], speed_up=0.5)
    said(story.explain_sweep(slow, floors), ("nowhere faster, at best 0.50×", "slower in 80 of 80 settings"), none)
    six = table.assign(flash_ms=table["precision"].map({"float32": 6.0, "bfloat16": 1.0}))
    said(story.explain_sweep(six, floors), (f"float32 takes {OURS} 6.00 times", "that explains it"), "not explain all")
    one = table[table["precision"] == "bfloat16"]
    said(story.explain_sweep(one, floors), "Neither", "TF32")
    unknown = table.assign(peak_tflops=NAN)
    said(story.explain_sweep(unknown, floors), "as three TF32 products", "datasheet")
    said(
        story.explain_sweep(tables.sweep(runs["small sweep"]), floors), ("nothing about the kernel", "small"), "Neither"
    )
