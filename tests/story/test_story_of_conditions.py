"""What is said of a run's conditions is what its figures show; what was not measured is not spoken of."""

from dataclasses import replace

import pytest

from labkit.node.conditions import NEVER_MEASURED, Conditions, GpuState, HostState, RankState, Snapshot
from labkit.story.conditions import explain_conditions


def conditions(enqueue_us=(7.3, 7.6), throttled=0, others=0, pressure=1.0, cores=32, errors=0) -> Conditions:
    """Return the conditions of a run on two GPUs."""
    ranks = tuple(RankState(rank, 60.0, us, 55.0) for rank, us in enumerate(enqueue_us))
    looks = [
        Snapshot(
            HostState(cores=cores),
            tuple(GpuState(gpu, other_processes=others, nvlink_errors=n) for gpu in (0, 1)),
            ranks,
        )
        for n in (0, errors)
    ]
    samples = [{"at_s": 0.0, "gpu": None, "cpu_pressure_percent": pressure}]
    for look in range(10):
        reasons = ["power cap"] if look < throttled else []
        told = {"utilisation_percent": 98, "sm_clock_mhz": 1755, "throttle_reasons": reasons}
        samples.append({"at_s": look / 4, "gpu": 0, **told})
    return Conditions(*looks, samples=tuple(samples), machine={"processor": "NVIDIA H200"})


@pytest.mark.parametrize(
    ("kept", "said", "unsaid"),
    [
        (
            conditions(),
            ["7.60 µs", "alike", "Clocks are free", "No other process", "has time"],
            ["throttled** for", "met"],
        ),
        (conditions((7.3, 10.5)), ["7.30 µs on the fastest", "10.5 µs", "ranks differ"], ["alike"]),
        (
            conditions(throttled=6),
            ["throttled** for 60 % of the measuring (power cap)", "1 755 MHz"],
            ["Clocks are free"],
        ),
        (conditions(others=1), ["Another process used"], ["No other process"]),
        (conditions(pressure=60.0, cores=1), ["1 core;", "shared or overloaded"], ["has time"]),
        (conditions(errors=2), ["met 4 NVLink recoveries"], []),
        (replace(conditions(), notes=("GPU 1 does not answer",)), ["GPU 1 does not answer."], []),
    ],
)
def test_what_is_said(kept, said, unsaid):
    text = explain_conditions(kept).data
    assert [words for words in said if words not in text] == []
    assert [words for words in unsaid if words in text] == []


def test_a_host_without_gpus_has_no_word_on_them():
    look = Snapshot(HostState(cores=2), (), (RankState(0, 55.0), RankState(1, 56.0)))
    text = explain_conditions(Conditions(look, look)).data
    assert "A Python call takes **56.0 ns** at most" in text
    assert not [word for word in ("GPU", "clock", "copy", "waited") if word in text]


def test_what_was_not_measured_is_one_sentence():
    assert explain_conditions(Conditions(missing=NEVER_MEASURED)).data == f"- {NEVER_MEASURED}."
