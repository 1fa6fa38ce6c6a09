"""Verdicts of lab 06 on tables in which a finding holds, and on others in which it does not."""

import pandas as pd
import pytest
from made import said
from made_benchmarking import launches_run, profiles_run, steps_run

from labkit.provenance import of_source
from lessons import benchmarking as lab

CPU = {"device": "cpu", "size": "small"}


@pytest.fixture
def make(tmp_path):
    """Gives a function that makes a run in a folder of its own."""
    made = []

    def make(kind, **knobs):
        made.append(kind)
        return kind(tmp_path / str(len(made)), **knobs)

    return make


def test_the_larger_size_is_faster_where_launches_decide(make):
    launches = lab.launches(make(launches_run))
    said(
        lab.larger_is_faster(lab.steps(make(steps_run)), launches),
        ("faster than the deepest one, with 1.7 times the work", "| µs per kernel |", "It launches ", "| medium |"),
        "| small |",  # a prediction asks for it
    )
    said(lab.larger_is_faster(lab.steps(make(steps_run, host_us=0.1)), launches), "is slower than the deepest one")
    table = lab.steps(make(steps_run)).assign(spread_ms=100.0)
    said(lab.larger_is_faster(table, launches), "within noise", "faster")


def test_a_slow_first_iteration_moves_the_mean_and_not_the_median(make):
    run, calm = make(steps_run), make(steps_run, first=1.0)
    here, recorded = lab.iterations(run), of_source(lab.iterations(calm), "recorded")
    both = "takes 40× as long here and 1.0× as long in the recorded run"
    said(lab.first_iteration(here, recorded), both)
    said(lab.first_iteration(recorded, recorded), "takes 1.0× as long in the recorded run", "here")
    said(lab.mean_or_median(lab.warm_ups(run)), ("mean is 3.6× as large", "median 1.0×"))
    flat = lab.warm_ups(calm).assign(mean_ms=1.0)
    said(lab.mean_or_median(flat), "do not move the mean")


def test_bfloat16_gains_where_the_gpu_is_the_limit(make):
    accounts = lab.accounts(make(profiles_run))
    said(lab.faster_units(lab.steps(make(steps_run, host_us=0.1)), accounts), "as fast here", "no gain")
    alike = lab.steps(make(steps_run, host_us=50.0))
    said(lab.faster_units(alike, accounts), "no gain in `small`, `medium`", "slower")
    small = (alike["model"] == "small") & (alike["precision"] == "autocast")
    slower = alike.assign(ms=alike["ms"].where(~small, 1.3 * alike["ms"]))
    told = lab.faster_units(slower, accounts)
    said(told, "slower in `small` and no gain in `medium`, `large` and `xl`", "the host's speed")
    tf32 = slower[slower["precision"] == "autocast"].assign(precision="tf32")
    both = pd.concat([slower[slower["precision"] != "tf32"], tf32], ignore_index=True)
    said(lab.faster_units(both, accounts), "In TF32, which casts nothing, `small` is slower, too")
    said(lab.faster_units(lab.steps(make(steps_run, host_us=900.0)), accounts), "makes no step faster")


def test_modes_tell_launches_from_fusion(make):
    run, fast, small = make(steps_run), make(steps_run, host_us=0.1), make(steps_run, **CPU)
    bound = "`small`, `medium`, `large` and `xl` are launch-bound"
    for here in (run, small):  # a run without CUDA graphs leaves the word to the recorded one
        said(lab.launches_or_fusion(lab.modes(here), lab.modes(run)), (bound, "fusion then gains 1.4×"), "slower")
    modes = lab.modes(run)
    slow = modes.assign(compiling=modes["compiling"].where(modes["model"] != "2.7b", 0.8))
    some = slow[slow["model"] != "2.7b"]
    assert "every size" not in lab.launches_or_fusion(some, some).data, "the run lacks one"
    said(lab.launches_or_fusion(slow, slow), "Compiling without graphs makes `2.7b` slower")
    said(lab.launches_or_fusion(lab.modes(fast), lab.modes(run)), "no size is launch-bound", "`small` is")


def test_the_launch_model_is_as_good_as_it_is(make):
    small = lab.launches(make(launches_run, **CPU))
    told = lab.launch_model(small, lab.launches(make(launches_run)))
    said(
        told,
        (
            "The model predicts",
            "From a width of 4 096 on",
            "25.0 kernels: 150 µs of the host",
            "A launch took the host 6.00 µs",
        ),
    )
    said(lab.launch_model(small, lab.launches(make(launches_run, off=1.5))), "The model misses", "predicts")
    said(lab.launch_model(small, lab.launches(make(launches_run, host_us=900.0))), "No width of the sweep")


def test_two_clocks_agree_or_not(make):
    agree, differ = (lab.accounts(make(profiles_run, apart=apart)) for apart in (0.01, 0.05))
    said(lab.clocks_agree(agree, agree), ("✔", "Watched, the recorded forward took up to"), "✘")
    differ = of_source(differ, "recorded")
    slow = agree.assign(slowed=0.7)
    said(lab.clocks_agree(agree, slow), "up to 1.7× as long")
    said(lab.clocks_agree(agree, differ), "1.0 % here (✔) and 5.0 % in the recorded run (✘)")


def test_the_questions_are_answered_by_the_tables(make):
    here, recorded = make(profiles_run, **CPU, softmax_us=0.05), make(profiles_run)
    told = lab.five_answers(here, recorded)
    said(told, ("| no GPU |", "`matmul_kernel`: 60 %, 40 calls", " → ", "its bytes: it takes 50 %"))
    said(told, "its FLOP: it takes 0.62 %")


def test_the_roofline_says_what_the_memory_bounds(make):
    small, full = (lab.roofline(make(profiles_run, **knobs)) for knobs in (CPU, {}))
    said(lab.bytes_or_flop(small, full), ("the memory bounds 98 % of the kernels' time, ", "`aten::mm`"))
    computing = full.assign(bound="compute", of_roof=0.5)
    said(lab.bytes_or_flop(computing, full), "no large operator is bound by the memory")
    said(lab.bytes_or_flop(computing.assign(of_roof=1.5), full), "Faster than this GPU computes", "bounds")


def test_one_minute_shows_this_run_beside_the_recorded_one(make):
    kinds = {"steps": steps_run, "launches": launches_run, "profiles": profiles_run}
    here, recorded = ({name: make(kind, **knobs) for name, kind in kinds.items()} for knobs in (CPU, {}))
    told = lab.in_one_minute(here, recorded)
    said(
        told,
        (
            "| no GPU, no CUDA graph | `small` is",
            "µs per operator, its work included | 6.00 µs per kernel: Python, dispatch, launch |",
        ),
    )
    said(told, "| not measured | the memory bounds", "no value")
