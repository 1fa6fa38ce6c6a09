"""The verdicts: each on a figure for which it is true, and beside its threshold on one for which it is not."""

import contextlib
import dataclasses
from types import SimpleNamespace

import pytest
from made import gpu_node
from made_card import CALL, PAIR, card, reading, row

from labkit.card import measure
from labkit.card.cards import failing_rows, headline, wrong_rows
from labkit.card.formats import to_junit, which_text
from labkit.card.readings import references
from labkit.card.verdicts import HEAT, odd_one_out
from labkit.tables.measures import Part


@pytest.mark.parametrize(
    ("value", "spread", "kind", "text"),
    [
        (390.0, 1.0, "sound", "sound"),
        (397.0, 1.0, "sound", "sound"),
        (400.0, 1.0, "sound", "sound: 2.6 % better, the reference is stale"),
        (382.5, 1.0, "sound", "sound"),  # Tukey's fence is at 389 - 1.5 × 2 = 386, but clocks resolve 2 %: 382.2
        (381.5, 1.0, "sound", "sound: 2.2 % worse, within the repeats' spread"),  # its own spread reaches the fence
        (380.5, 1.0, "below", "below the reference by 2.4 %"),
        (360.0, 1.0, "below", "below the reference by 7.7 %"),
        (
            485.0,
            1.0,
            "sound",
            "sound: 24 % better, the reference is stale",
        ),  # 1.4 % above the limit: clocks and datasheets resolve 2 %
        (490.0, 1.0, "impossible", "impossible: check the clock"),
        (-1.0, 0.0, "impossible", "impossible: check the clock"),
    ],
)
def test_the_fence_of_the_reference_and_the_limit_decide(value, spread, kind, text):
    found = row(card(reading(value=value, spread=spread)))
    assert (found.kind, found.verdict) == (kind, text)


def test_lower_is_better_where_the_figure_says_so():
    recorded = [reading(CALL, 90.0, 5.0, setting="1 KiB, 2 GPUs", limit=None)]
    kinds = []
    for value in (60.0, 110.0, 150.0, 200.0):
        here = reading(CALL, value, 5.0, setting="1 KiB, 2 GPUs", limit=None)
        kinds.append(row(card(here, recorded=recorded), CALL).verdict)
    differ = ["sound: 22 % worse, as hosts differ", "sound: 67 % worse, as hosts differ"]
    assert kinds == ["sound", *differ, "below the reference by 122 %"]


@pytest.mark.parametrize(("value", "kind"), [(55.0, "sound"), (51.5, "sound"), (49.0, "below")])
def test_copies_with_the_host_differ_between_sound_nodes(value, kind):
    """Two cards of one node, minutes apart: 110 and 102 GB/s."""
    copies = ("topology", "host → GPU, pinned, slowest GPU")
    here, there = (reading(copies, each, 0.2, limit=None) for each in (value, 55.0))
    assert row(card(here, recorded=[there]), copies).kind == kind


def test_the_fence_goes_around_all_recorded_runs():
    slower = reading(value=350.0, run="h200x2/topology/copies")
    assert row(card(reading(value=352.0), recorded=[*[reading()], slower])).kind == "sound"


@pytest.mark.parametrize(
    ("here", "reason"),
    [
        (reading(value=300.0, conditions={"throttled_percent": 40.0, "throttle_reasons": HEAT}), f"throttled ({HEAT})"),
        (reading(value=300.0, conditions={"other_processes": 1}), "another process used the GPUs"),
        (reading(value=300.0, shared=True), "another process used the GPUs"),
        (reading(setting="16 MiB"), "recorded with 1024 MiB"),
        (reading(model="NVIDIA H200 MIG 1g.18gb"), "not recorded on NVIDIA H200 MIG 1g.18gb"),
    ],
)
def test_a_figure_that_cannot_be_compared_says_why(here, reason):
    recorded = [reading()] if here.model == "NVIDIA H200" else []
    found = row(card(here, recorded=recorded))
    assert (found.kind, found.verdict) == ("not comparable", f"not comparable: {reason}")


@pytest.mark.parametrize(("percent", "kind"), [(23.0, "below"), (33.0, "below"), (60.0, "not comparable")])
def test_a_power_cap_that_the_reference_reached_too_is_no_excuse(percent, kind):
    capped = {"throttled_percent": 23.4, "throttle_reasons": "power cap"}
    here = reading(value=300.0, conditions=capped | {"throttled_percent": percent})
    assert row(card(here, recorded=[reading(conditions=capped)])).kind == kind
    assert row(card(here)).kind == "below"  # the reference's share is not known


def test_a_throttled_run_that_reaches_the_reference_is_sound():
    assert row(card(reading(conditions={"throttled_percent": 40.0}))).kind == "sound"


def test_what_was_not_measured_says_why():
    made = card(why_not={"topology": "waits for 2 GPUs"}, otherwise="make run", gpus=1)
    assert row(made).verdict == "not measured: waits for 2 GPUs"
    assert row(made, CALL).verdict == "not measured: make run"
    together = row(made, ("topology", "host → GPU, all links together"))
    assert together.verdict == "not measured: needs 2 GPUs"


def test_a_slow_host_stands_beside_the_figures_that_depend_on_it():
    here = {"enqueue_us": 12.0, "cores": 1, "torch": "2.11", "ranks": 2}
    there = {"enqueue_us": 7.0, "cores": 64, "torch": "2.11", "ranks": 2}
    recorded = [reading(key, 90.0, conditions=there, limit=None) for key in (PAIR, CALL)]
    shown = [reading(PAIR, 60.0, conditions=here, limit=None), reading(CALL, 200.0, conditions=here, limit=None)]
    made = card(*shown, recorded=recorded)
    assert row(made).notes == ()
    assert row(made, CALL).kind == "below"
    assert [word in note for word, note in zip(("cores", "12 µs"), row(made, CALL).notes, strict=True)] == [True, True]


def test_the_reading_with_a_reference_counts_before_later_ones_and_small_ones_last():
    with_reference = reading(date="2026-11-22T09:00:00", run="first")
    others = [reading(setting="16 MiB", run="second"), reading(setting="16 MiB", small=True, run="third")]
    assert row(card(*others, with_reference)).run == "first"
    assert row(card(*others, recorded=())).run == "second"


def test_a_level_to_fail_on_names_the_rows_that_fail():
    below = card(reading(value=380.0))
    impossible = card(reading(value=900.0))
    assert [len(failing_rows(below, level)) for level in ("impossible", "below", "below=5")] == [0, 1, 0]
    assert [len(failing_rows(impossible, level)) for level in ("impossible", "below", "below=5")] == [1, 1, 1]


def test_the_first_line_says_whether_the_node_is_sound_and_what_to_look_at_first():
    sound, below, impossible = card(reading()), card(reading(value=380.0)), card(reading(value=900.0))
    assert headline(sound) == "Sound: 1 of 1 figures reach the reference"
    figure = row(below).figure
    assert headline(below) == f"Look at: {figure}, below the reference by 2.6 %. 0 of 1 figures reach the reference"
    assert headline(impossible).startswith(f"Look at: {figure}, impossible: check the clock. 0 of 1")
    assert headline(card(reading(), recorded=[])).startswith("Not judged: 1 figures measured on NVIDIA H200")
    laptop = dataclasses.replace(sound, node=sound.node | {"gpus": 0})
    assert headline(laptop).startswith("No GPU here")
    worst = [
        dataclasses.replace(row(below), figure=name, percent=by) for name, by in zip("abcd", (3, 9, 5, 4), strict=True)
    ]
    many = dataclasses.replace(below, rows=(*worst, row(impossible), row(sound)))
    assert [each.figure for each in wrong_rows(many)] == [figure, "b", "c", "d", "a"]
    assert "; and 2 more. 1 of 6 figures" in headline(many)


def test_a_disturbed_node_is_not_called_sound():
    sound = reading(CALL, 90.0, 1.0, limit=None)
    recorded = [reading(), reading(CALL, 90.0, 1.0, limit=None)]
    disturbed = card(reading(value=200.0, conditions={"other_processes": 1}), sound, recorded=recorded)
    why = "Measure again: 1 figure is worse than the reference and disturbed (another process used the GPUs)"
    assert headline(disturbed) == f"{why}. 1 of 1 figures reach the reference"
    slow = reading(CALL, 300.0, 1.0, limit=None)
    both = card(reading(value=200.0, conditions={"other_processes": 1}), slow, recorded=recorded)
    assert headline(both).startswith(f"Look at: {CALL[1]}, below the reference by 233 %. {why}. 0 of 1")
    assert headline(card(reading(setting="16 MiB"), sound, recorded=recorded)).startswith("Sound: 1 of 1")


def test_processes_that_stand_in_for_gpus_are_no_figures_of_a_node_with_gpus():
    assert row(card(reading(model=""))).kind == "not measured"


@pytest.mark.parametrize(("gpus", "measured"), [(1, ["cuda"]), (0, ["cuda", "cpu"])])
def test_nothing_is_launched_on_cpus_for_a_node_with_gpus(monkeypatch, gpus, measured):
    launched = []
    monkeypatch.setattr(
        measure, "card_plans", lambda: [SimpleNamespace(lab="a", device=each) for each in ("cuda", "cpu")]
    )
    monkeypatch.setattr(measure, "figures_of", lambda plan: [("a", plan.device)])
    monkeypatch.setattr(measure, "_one_agent", contextlib.nullcontext)
    monkeypatch.setattr(measure, "_measure", lambda plan, *_: launched.append(plan.device))
    monkeypatch.setattr(measure.node, "here", lambda: gpu_node(gpus))
    measure.measure_card(lambda text: None)
    assert launched == measured


def _of_gpus(*values, spread=1.0, path="", **more):
    """Return a reading of the slowest of several GPUs; each has the UUID of its number."""
    parts = tuple(
        Part(f"GPU {index}", value, value - spread, value + spread, (f"GPU-{index}",), path)
        for index, value in enumerate(values)
    )
    return reading(value=min(values), spread=spread, parts=parts, **more)


@pytest.mark.parametrize(
    ("values", "spread", "kind"),
    [
        ((390.0, 392.0, 391.0, 389.0), 1.0, "alike"),
        ((390.0, 392.0, 374.0, 391.0), 1.0, "alike"),  # 4.3 % below its peers' median
        ((390.0, 392.0, 366.0, 391.0), 1.0, "odd one out"),
        ((390.0, 392.0, 366.0, 391.0), 15.0, "alike"),  # their repeats overlap
        ((366.0, 391.0), 1.0, "odd one out"),
    ],
)
def test_a_gpu_that_is_worse_than_its_peers_is_found_without_a_reference(values, spread, kind):
    found = row(card(_of_gpus(*values, spread=spread), recorded=[]))
    assert found.kind == kind
    slowest = values.index(min(values))
    assert which_text(found) == f"GPU {slowest} (GPU-{slowest})"
    if kind == "odd one out":
        assert found.verdict == f"GPU {slowest} is {found.percent:.2g} % worse than its peers"


def test_a_gpu_that_is_worse_than_its_peers_is_told_though_the_reference_allows_it():
    recorded = [reading(value=380.0, spread=20.0)]
    assert row(card(_of_gpus(366.0, 391.0), recorded=recorded)).kind == "odd one out"
    assert row(card(_of_gpus(388.0, 391.0), recorded=recorded)).kind == "sound"
    assert row(card(_of_gpus(366.0, 391.0, shared=True), recorded=recorded)).kind == "sound"
    assert row(card(_of_gpus(366.0, 391.0, shared=True), recorded=[])).kind == "not comparable"
    below = card(_of_gpus(250.0, 391.0), recorded=recorded)
    assert row(below).kind == "below" and "slowest pair (GPU 0), below" in headline(below)


def test_pairs_are_compared_with_pairs_of_the_same_path():
    near, far = (
        _of_gpus(*values, path=path).parts for values, path in (((390.0, 391.0), "NV18"), ((50.0, 51.0), "SYS"))
    )
    assert row(card(dataclasses.replace(_of_gpus(50.0, 391.0), parts=(*near, *far)), recorded=[])).kind == "alike"
    slow = _of_gpus(40.0, 50.0, 51.0, path="SYS").parts
    found = row(card(dataclasses.replace(_of_gpus(40.0, 391.0), parts=(*near, *slow)), recorded=[]))
    assert found.kind == "odd one out" and found.percent == pytest.approx(20.8, abs=0.1)


def test_no_gpu_of_a_recorded_node_is_the_odd_one_out():
    recorded, _ = references("NVIDIA H200")
    with_peers = [one for one in recorded if len(one.parts) > 1 and not one.setting.startswith("1 MiB")]
    assert len(with_peers) >= 10
    assert [one for one in with_peers if odd_one_out(one.parts, "higher")] == []


def test_without_a_reference_the_first_line_says_whether_the_gpus_agree():
    assert headline(card(_of_gpus(390.0, 391.0), recorded=[])).startswith("Alike: 1 figures agree among the 2 GPUs")
    odd = card(_of_gpus(300.0, 391.0), recorded=[])
    assert headline(odd).startswith("Look at: GPU → GPU, slowest pair, GPU 0 is 23 % worse than its peers")
    assert len(failing_rows(odd, "below")) == 1 and "<failure" in to_junit(odd) and "GPU-0" in to_junit(odd)
