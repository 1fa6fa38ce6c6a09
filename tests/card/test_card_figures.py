"""Every lab's key figures: what recorded runs show of them obeys physics, and `make card` measures some of each."""

import math
from dataclasses import replace

import pytest
from made import copies_run, cost_run, gpu_node

from labkit.card.readings import card_plans, figures_of, key_figures, readings, readings_of_runs, references
from labkit.card.verdicts import contradicts_physics, judge
from labkit.engine.run import Run
from labkit.tables.measures import Measured, repeats

LAUNCHLESS = {"accounting"}


@pytest.fixture(scope="module")
def recorded():
    """Return the readings of all recorded runs on H200s."""
    found, problems = references("NVIDIA H200")
    assert problems == []
    return found


def test_every_lab_has_two_to_five_figures_with_names_of_their_own():
    for lab, figures in key_figures().items():
        assert 2 <= len(figures) <= 5, lab
        assert len({one.name for one in figures}) == len(figures)
        assert {one.better for one in figures} <= {"higher", "lower"}


def test_recorded_figures_obey_physics(recorded):
    figures = {(lab, one.name): one for lab, several in key_figures().items() for one in several}
    assert len({one.key for one in recorded}) >= 25
    for one in recorded:
        assert one.low <= one.value <= one.high and one.repeats > 1
        assert not contradicts_physics(figures[one.key], one), one


def test_the_reference_holds_what_the_recorded_runs_of_the_gpu_model_show(recorded):
    copies = {one.figure: one for one in recorded if one.lab == "topology"}
    together = copies["host → GPU, all links together"]
    assert together.value == pytest.approx(210.8, abs=0.1) and together.limit == 4 * 64
    assert together.setting == "1024 MiB, 4 GPUs" and together.run == "h200x4/topology/copies"
    pairs = copies["GPU → GPU, slowest pair"].parts
    assert len(pairs) == 12 and {pair.path for pair in pairs} == {"NV18"}
    assert references("NVIDIA B200") == ([], [])


# What the same 2 GPUs showed two minutes after the recorded card: median and quartiles in GB/s.
AGAIN = {
    "host → GPU, pinned, slowest GPU": (54.86, 54.74, 54.93),
    "GPU → host, pinned, slowest GPU": (54.90, 54.89, 54.91),
    "host → GPU, all links together": (107.87, 107.29, 109.20),
    "GPU → GPU, slowest pair": (382.71, 382.27, 385.83),
    "copy within a GPU, slowest GPU": (1888.9, 1882.3, 1962.1),
}


@pytest.mark.parametrize(
    ("gpus", "expected"), [("h200x2", {"sound"}), ("h200x4", {"sound", "below", "not comparable"})]
)
def test_a_sound_node_of_two_gpus_has_a_reference_of_two_gpus(recorded, gpus, expected):
    figures = {one.name: one for one in key_figures()["topology"]}
    known = [one for one in recorded if one.lab == "topology" and one.run == f"{gpus}/topology/copies"]
    two = {one.figure: one for one in recorded if one.run == "h200x2/topology/copies"}
    kinds = set()
    for name, (value, low, high) in AGAIN.items():
        here = replace(two[name], value=value, low=low, high=high, run="again")
        kinds.add(judge(figures[name], here, [one for one in known if one.figure == name], 2).kind)
    assert kinds == expected


def test_a_damaged_recorded_run_costs_itself_alone(tmp_path):
    for name in ("right", "damaged"):
        copies_run(tmp_path / name, node=gpu_node(4))
    (tmp_path / "damaged" / "node.json").write_text("{")
    found, problems = references("NVIDIA H200", tmp_path)
    assert {one.key for one in found} == {("topology", one.name) for one in key_figures()["topology"]}
    assert len(problems) == 1 and "damaged" in problems[0] and "\n" not in problems[0]


def test_the_slowest_gpu_and_the_best_numa_node_count(tmp_path):
    run = copies_run(tmp_path / "run", odd={(2, 3): 300.0}, numa=(0, 1), far=0.5)
    gpus = tuple(replace(gpu, uuid=f"GPU-{gpu.index}") for gpu in run.node.gpus)
    run.node_file.write_text(replace(run.node, gpus=gpus).to_json())
    run = Run(run.folder)
    shown = {one.figure: one for one in readings(run)}
    pair = shown["GPU → GPU, slowest pair"]
    assert pair.value == pytest.approx(300.0) and len(pair.parts) == 12
    (slow,) = (part for part in pair.parts if part.value < 350)
    assert slow.name == f"GPU {gpus[2].index} → GPU {gpus[3].index}"
    assert slow.uuids == ("GPU-2", "GPU-3")
    assert shown["host → GPU, pinned, slowest GPU"].value == pytest.approx(55.0)
    assert shown["host → GPU, all links together"].value == pytest.approx(4 * 48.3)


def test_a_run_without_gpus_has_no_limit_and_says_so_in_its_setting(tmp_path):
    run = copies_run(tmp_path / "run", device="cpu", memories=("pageable",), size="small", pair=3.0)
    (pair,) = (one for one in readings(run) if one.figure == "GPU → GPU, slowest pair")
    assert not pair.has_limit and pair.small and pair.setting == "64 MiB, CPU processes"


def test_start_up_is_that_of_later_launches(tmp_path):
    shown = {one.figure: one for one in readings(cost_run(tmp_path / "run"))}
    assert shown["start-up of workers, later launches"].value == pytest.approx(1.25)  # the warm-up took 9


def test_a_damaged_run_is_a_sentence(tmp_path):
    copies_run(tmp_path / "run").node_file.write_text("{")
    found, problems = readings_of_runs([Run(tmp_path / "run")])
    assert found == [] and len(problems) == 1 and "run cannot be read" in problems[0]


def test_each_plan_of_the_card_shows_key_figures_here():
    plans = card_plans()
    assert {plan.lab for plan in plans} >= {"start", "topology", "collectives", "benchmarking"}
    assert all(figures_of(plan) for plan in plans)


def test_repeats_are_those_of_the_slowest_rank_without_warm_ups(tmp_path):
    run = copies_run(tmp_path / "run", gpus=2, memories=("pinned",))
    rates = repeats(run, "gb_per_s", copy="gpu_to_host", together=False)
    assert len(rates) == 3 and rates.max() == pytest.approx(55.0 * 1.01)
    assert len(repeats(run, "gb_per_s", colour="red")) == 0


def test_a_figure_of_repeats_has_their_quartiles_and_a_rate_turns_them_round():
    time = Measured.of([2.0, 1.0, 3.0, math.nan], "any")
    assert (time.low, time.value, time.high, time.repeats) == (1.5, 2.0, 2.5, 3)
    rate = time.rate(6.0, 8.0)
    assert (rate.low, rate.value, rate.high, rate.limit) == (2.4, 3.0, 4.0, 8.0)
    assert Measured.of([math.nan], "any") is None
