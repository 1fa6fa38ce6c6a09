"""The chart of a run's conditions: a line per GPU with its gaps, throttled looks, points; and what was not measured."""

import math
from dataclasses import replace

from figures import checked

from labkit.charts.conditions import NO_LOOKS, conditions_chart
from labkit.node.conditions import NEVER_MEASURED, Conditions, GpuState, HostState, Snapshot

POINTS = ({"point": 0, "began_s": 1.0, "ended_s": 4.0}, {"point": 1, "began_s": 4.5, "ended_s": 8.0}, {"point": 2})


def of_gpus(silent: range = range(0)) -> Conditions:
    """Return ten seconds of two GPUs, the second silent in some looks; every fifth look is throttled."""
    samples = []
    for look in range(40):
        samples.append({"at_s": look / 4, "gpu": None, "cpu_percent": 20.0})
        for gpu in (0, 1):
            reasons = ["power cap"] if look % 5 == 0 else []
            told = {"utilisation_percent": 97, "power_w": 650.0, "sm_clock_mhz": 1980 - 200 * len(reasons)}
            if not (gpu and look in silent):
                samples.append({"at_s": look / 4, "gpu": gpu, "throttle_reasons": reasons, **told})
    look = Snapshot(HostState(), tuple(GpuState(gpu, power_limit_w=700.0) for gpu in (0, 1)))
    named = {"run": "start · hello, 2 × GPU", "source": "measured here, 2 × NVIDIA H200, 2026-11-22"}
    return Conditions(look, look, seconds=10.0, points=POINTS, samples=tuple(samples), **named)


def line(ax, label):
    return next(one for one in ax.get_lines() if one.get_label() == label)


def test_each_gpu_is_a_line_and_its_silence_a_gap():
    figure = checked(conditions_chart(of_gpus(silent=range(10, 20))))
    usage, clock, power = figure.axes
    assert len(line(usage, "GPU 0").get_ydata()) == 40
    assert sum(math.isnan(value) for value in line(usage, "GPU 1").get_ydata()) == 10
    assert list(line(clock, "throttled: power cap").get_ydata()) == [1780] * (8 + 6)
    assert line(power, "power cap").get_ydata()[0] == 700.0
    assert power.get_ylim()[1] > 700
    assert len(usage.patches) == 2, "a point that has no end has no span"
    assert [text.get_text() for text in usage.texts] == ["0", "1"]


def test_a_host_without_gpus_shows_its_load():
    samples = tuple({"at_s": look / 4, "gpu": None, "cpu_percent": 50.0} for look in range(8))
    figure = checked(conditions_chart(replace(of_gpus(), samples=samples)))
    (ax,) = figure.axes
    assert "load of all cores" in ax.get_title(loc="left")
    assert set(ax.get_lines()[0].get_ydata()) == {50.0}


def test_a_run_whose_looks_were_not_kept_gets_a_sentence_and_no_chart():
    assert conditions_chart(replace(of_gpus(), samples=())).data == f"- {NO_LOOKS}."
    unreadable = replace(of_gpus(), samples=({"at_s": 0.0, "gpu": 0},), missing=NEVER_MEASURED)
    assert conditions_chart(unreadable).data == f"- {NEVER_MEASURED}."


def test_a_column_that_was_not_measured_is_said_in_its_panel():
    without_power = tuple({**sample, "power_w": None} for sample in of_gpus().samples)
    usage, clock, power = conditions_chart(replace(of_gpus(), samples=without_power)).axes
    assert any("does not count it" in text.get_text() for text in power.texts)
    assert not any("does not count it" in text.get_text() for ax in (usage, clock) for text in ax.texts)
