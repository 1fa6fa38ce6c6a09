"""Sentences of lab 06 on tables in which a claim holds, and on others in which it does not."""

import pytest
from made import said
from made_benchmarking import firsts_run, launches_run, profiles_run, steps_run

from lessons import benchmarking as lab


@pytest.fixture
def make(tmp_path):
    """Gives a function that makes a run in a folder of its own."""
    made = []

    def make(kind, **knobs):
        made.append(kind)
        return kind(tmp_path / str(len(made)), **knobs)

    return make


def test_a_slow_first_iteration_moves_the_mean_and_not_the_median(make):
    run = make(steps_run)
    told = lab.explain_iterations(lab.iterations(run), lab.warm_ups(run))
    said(
        told, ("`small` takes 40×", "first work of this process", "From iteration 1 on", "decide a mean, not a median")
    )
    calm = make(steps_run, first=1.0)
    table = lab.iterations(calm)
    told = lab.explain_iterations(table[table["model"] == "small"], lab.warm_ups(calm))
    said(told, ("takes 1.0×", "From iteration 0 on"))


def test_iterations_that_never_settle_are_called_noisy(make):
    run = make(steps_run)
    table = lab.iterations(run)
    table.loc[table["iteration"] == table["iteration"].max(), "times_later"] = 2.0
    said(lab.explain_iterations(table, lab.warm_ups(run)), "do not settle", "From iteration")


def test_what_only_the_first_step_does(make):
    run = make(firsts_run)
    told = lab.explain_first_calls(lab.first_calls(run), lab.first_iterations(run))
    said(told, ("loads code 400 ms", "`Runtime Triggered Module Loading` (400 ms)", "30 times"))
    said(told, ("`cudaMalloc` (10.0 ms, nearly all in one of 30 calls)", "not what makes the first one slow"))
    run = make(firsts_run, extra_us=0.0, mhz=(1000.0, 1980.0))
    told = lab.explain_first_calls(lab.first_calls(run), lab.first_iterations(run))
    said(told, "the first step is no slower", "loads code")
    run = make(firsts_run, mhz=(1000.0, 1980.0))
    said(lab.explain_first_calls(lab.first_calls(run), lab.first_iterations(run)), "still rising")


def test_without_a_gpu_neither_clock_nor_allocations_are_told(make):
    run = make(firsts_run, device="cpu", size="small")
    told = lab.explain_first_calls(lab.first_calls(run), lab.first_iterations(run))
    said(told, "This run is small", "MHz", "allocator")


def test_steps_gain_by_precision_where_the_gpu_is_the_limit(make):
    told = lab.explain_steps(lab.steps(make(steps_run)))
    said(told, ("TF32 makes it", "fewer layers count for more"), "no gain", "impossible")
    slow = lab.explain_steps(lab.steps(make(steps_run, host_us=500.0)))
    said(
        slow,
        (
            "**no gain in `small`, `medium`, `large`, `xl` and `2.7b`**",
            "fewer layers count for more",
            "A layer takes 12.5 ms",
        ),
    )
    fast = lab.explain_steps(lab.steps(make(steps_run, host_us=0.1)))
    said(fast, "the larger model is the slower one", "fewer layers")
    said(lab.explain_steps(lab.steps(make(steps_run, fusion=3.0))), "shorter than this GPU allows")


def test_modes_tell_launches_from_fusion(make):
    told = lab.explain_modes(lab.modes(make(steps_run)))
    said(told, ("**Launch-bound in eager**: `small`", "The GPU is the limit in `2.7b`", "still cost time in `small`"))
    fast = lab.explain_modes(lab.modes(make(steps_run, host_us=0.1)))
    said(fast, ("The GPU is the limit in", "Compiled, the GPU is the limit in every size"), "Launch-bound in eager")
    small = make(steps_run, device="cpu", size="small")
    said(lab.explain_modes(lab.modes(small)), "eager is the only mode", "Compiling")


def test_the_launch_model_is_as_good_as_it_is(make):
    told = lab.explain_launches(lab.launches(make(launches_run)))
    said(told, "the host takes 6.00 µs to launch it, and the GPU 2.28 µs in `small` and 5.11 µs in `2.7b`")
    said(told, ("25.0 kernels", "launch-bound at any depth", "From a width of 4 096 on", "as close as"))
    said(lab.explain_launches(lab.launches(make(launches_run, off=1.5))), "further off than", "as close as")
    said(lab.explain_launches(lab.launches(make(launches_run, host_us=0.001))), "limit at any depth", "launch-bound")
    said(lab.explain_launches(lab.launches(make(launches_run, host_us=900.0))), "No width of the sweep")
    small = make(launches_run, device="cpu", size="small")
    said(lab.explain_launches(lab.launches(small)), "A CPU is host and device", "From a width")


def profile(run):
    kernels = lab.kernels(run, model="small", precision="float32")
    return lab.explain_profile(lab.accounts(run), kernels, lab.families(run), lab.attention_parts(run))


def test_the_five_questions_are_answered_by_the_tables(make):
    told = profile(make(profiles_run))
    said(told, ("**they agree**", "10 % slower", "no kernel for", "`matmul_kernel` (60 %", "**it falls**"))
    said(told, "the bytes explain its time, not the FLOP")
    other = profile(make(profiles_run, apart=0.05, softmax_us=0.1))
    said(other, ("**they do not agree**", "no better than the FLOP do"), "**they agree**")
    small = profile(make(profiles_run, device="cpu", size="small"))
    said(small, "This run is small", "waits for launches")


def test_the_roofline_says_who_is_bound_by_what(make):
    run = make(profiles_run)
    told = lab.explain_roofline(lab.roofline(run, model="2.7b", precision="float32"))
    said(told, ("`aten::mm` does most FLOP", "(compute)"), ("Memory bounds** `aten::mm`", "Faster than"))
    run = make(profiles_run, mm_share=0.3)
    wide = lab.explain_roofline(lab.roofline(run, model="2.7b", precision="autocast"))
    said(wide, ("**Memory bounds** `aten::mm`", "Above the memory's roof: `aten::mm`"))
    wrong = lab.roofline(make(profiles_run, mm_share=0.1), model="2.7b", precision="float32")
    said(lab.explain_roofline(wrong), "**Faster than this GPU computes**: `aten::mm`", "Above the memory")
    small = make(profiles_run, device="cpu", size="small")
    said(lab.explain_roofline(lab.roofline(small, model="small", precision="float32")), "no roofs")
