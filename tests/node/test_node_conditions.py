"""Conditions keep what is known and nothing else; two runs' differences are told, where they change measurements."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from labkit.engine.recordings import replay
from labkit.engine.run import Run
from labkit.node.comparability import differences_between, key_conditions
from labkit.node.conditions import Conditions, GpuState, HostState, RankState, Snapshot, parse

H200 = {"driver": "580.159.04", "torch": "2.11.0", "processor": "NVIDIA H200", "ranks": 2}


def looks(throttled: int = 0, *, utilisation: float = 97.0, count: int = 20) -> tuple[dict, ...]:
    """Return samples of a GPU, the first `throttled` of them under its power cap."""
    reasons = [["power cap"] if index < throttled else [] for index in range(count)]
    return tuple(
        {"at_s": index / 4, "gpu": 0, "utilisation_percent": utilisation, "throttle_reasons": why, "sm_clock_mhz": 1900}
        for index, why in enumerate(reasons)
    )


def conditions(enqueue_us=(7.3, 7.5), *, others=0, throttled=0, cores=32, **machine) -> Conditions:
    """Return the conditions of a run on one H200; `enqueue_us` of each rank."""
    ranks = tuple(RankState(rank, 60.0, us, 55.0) for rank, us in enumerate(enqueue_us))
    look = Snapshot(HostState(cores=cores), (GpuState(0, other_processes=others, power_limit_w=700.0),), ranks)
    return Conditions(look, look, samples=looks(throttled), machine=H200 | machine)


def test_what_is_written_is_read_and_what_is_not_known_is_in_no_file():
    whole = replace(conditions(), seconds=5.0, notes=("GPU 1 is a MIG slice",), machine={})
    text = whole.to_json()
    assert parse(text, whole.samples) == whole
    assert "null" not in text
    host = json.loads(text)["before"]["host"]
    assert host == {"cores": 32}, "a counter that the machine lacks is absent, not zero"
    assert parse(text).before.host.cpu_pressure_percent is None


def test_the_time_series_has_a_gap_where_a_counter_is_missing():
    table = replace(conditions(), samples=({"at_s": 0.0, "gpu": 0, "power_w": 700.0}, {"at_s": 0.2, "gpu": 0})).table()
    assert table["power_w"].isna().tolist() == [False, True]
    assert table["cpu_percent"].isna().all()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"version": 2}', '{"version": 1, "before": 3}', '{"version": 1, "before": {"gpus": [{}]}}'],
)
def test_a_damaged_file_is_one_sentence(text):
    read = parse(text)
    assert not read.measured
    assert read.missing.startswith("This run's conditions.json cannot be read: ")
    assert key_conditions(read) == {}


def test_a_run_without_the_file_says_so_and_still_knows_its_software():
    old = replay("h200x4/start/hello").conditions()
    assert (old.measured, old.samples) == (False, ())
    assert "has no conditions.json" in old.missing
    known = {"driver": old.machine["driver"], "torch": "2.11.0", "processor": "NVIDIA H200", "cores": 64, "ranks": 4}
    assert key_conditions(old) == known == old.machine


def test_a_run_gives_what_its_folder_holds(tmp_path):
    recorded = replay("h200x4/start/hello")
    run = Run(tmp_path)
    for file in (recorded.plan_file, recorded.node_file):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    run.conditions_file.write_text(conditions().to_json())
    run.samples_file.write_text("".join(json.dumps(sample) + "\n" for sample in looks(5)))
    known = recorded.conditions()
    expected = replace(conditions(throttled=5), machine=known.machine, run=known.run, source=run.source)
    assert run.conditions() == expected
    assert known.run == "start · hello, 4 × GPU"


def test_key_figures_are_the_slowest_ranks_and_the_busy_looks():
    idle = looks(utilisation=3.0)
    run = replace(conditions((7.0, 10.5), throttled=5), samples=(*looks(5), *idle))
    known = key_conditions(run)
    assert known["enqueue_us"] == 10.5
    assert known["pinned_copy_gb_per_s"] == 110.0
    assert (known["throttled_percent"], known["throttle_reasons"]) == (25.0, "power cap")
    assert "cpu_pressure_percent" not in known


def test_throttling_is_what_the_driver_counts():
    """The measured case: 2.1 s of 8.9 s in each of two runs, of which three looks at busy GPUs told less."""
    points = ({"point": 0, "began_s": 5.0, "ended_s": 13.9}, {"point": 1, "began_s": 14.0})
    ends = [Snapshot(gpus=(GpuState(0, power_throttled_s=6.8 + s, heat_throttled_s=0.0),)) for s in (0, 2.1)]
    known = key_conditions(replace(conditions(throttled=20), before=ends[0], after=ends[1], points=points))
    assert known["throttled_percent"] == pytest.approx(23.6, abs=0.1)
    assert known["throttle_reasons"] == "power cap"
    assert "throttled_percent" not in key_conditions(replace(conditions(), samples=looks(1, count=3))), "a few looks"


def test_one_disturbed_look_is_not_the_runs_host():
    disturbed = replace(conditions(), after=conditions((80.0, 7.0)).after)
    assert key_conditions(disturbed)["enqueue_us"] == 7.5


ALIKE = conditions()


@pytest.mark.parametrize(
    ("other", "what", "host_only"),
    [
        (conditions((7.0, 11.4)), "enqueue", True),
        (conditions(others=1), "other processes", False),
        (conditions(throttled=4), "throttled", False),
        (conditions(cores=1), "cores", True),
        (conditions(driver="570.1"), "driver", False),
    ],
)
def test_a_difference_that_matters_is_told(other, what, host_only):
    (found,) = differences_between(key_conditions(ALIKE), key_conditions(other))
    assert what in found.sentence()
    assert found.host_only is host_only
    (mirrored,) = differences_between(key_conditions(other), key_conditions(ALIKE))
    assert (mirrored.first, mirrored.second) == (found.second, found.first)


@pytest.mark.parametrize(
    "other",
    [
        conditions((7.0, 11.0)),
        conditions(throttled=2),
        conditions(cores=64),
        conditions((70.0,), processor="NVIDIA A100", driver="1"),  # another model is not compared by its conditions
        Conditions(missing="none"),
    ],
)
def test_what_does_not_matter_or_is_not_known_is_no_difference(other):
    assert differences_between(key_conditions(ALIKE), key_conditions(other)) == ()


FOLDER = Path(__file__).parents[1] / "fixtures" / "conditions"


def measured(name: str) -> Conditions:
    """Return the conditions of a load on 2 × H200: two quiet runs, one beside a neighbour, one on a single core."""
    read = Run(FOLDER / name).kept_conditions()
    return replace(read, machine=H200 | {"cores": read.before.host.cores})


@pytest.mark.parametrize(
    ("name", "expected"),
    [("quiet2", []), ("neighbour", ["throttled", "other processes"]), ("taskset", ["usable cores"])],
)
def test_measured_runs_differ_in_what_was_done_to_them_and_in_nothing_else(name, expected):
    found = [
        one.what for one in differences_between(key_conditions(measured("quiet1")), key_conditions(measured(name)))
    ]
    assert len(found) == len(expected)
    assert all(word in what for word, what in zip(expected, found, strict=True))
