"""The memory timeline on made-up histories of the allocator: every MiB is of the right kind at every moment."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.theory.allocations import KINDS, fragments, timeline
from labkit.theory.sizes import MIB

PHASES = [("forward", 0.0, 100.0), ("backward", 110.0, 200.0), ("optimizer", 210.0, 300.0)]


def event(when: float, action: str, addr: int = 0, mib: float = 1.0) -> dict:
    return {"time_us": when, "action": action, "addr": addr, "size": int(mib * MIB), "stream": 0, "frames": []}


def at(rows: list[dict], when_us: float) -> dict:
    """Give what is in use at a moment: every bin holds one event at most in these tests."""
    return [row for row in rows if row["t_ms"] <= when_us / 1e3][-1]


def lived(addr: int, mib: float, start: float, end: float | None = None) -> list[dict]:
    """Give the events of one allocation."""
    events = [event(start, "alloc", addr, mib)]
    if end is not None:
        events += [event(end, "free_requested", addr, mib), event(end, "free_completed", addr, mib)]
    return events


def history(*lives: list[dict]) -> list[dict]:
    return sorted((event for events in lives for event in events), key=lambda event: event["time_us"])


@pytest.mark.parametrize(
    ("start", "end", "kind"),
    [
        (10, 150, "activations"),
        (10, 50, "temporary"),
        (10, 105, "temporary"),
        (120, 250, "gradients"),
        (120, 190, "temporary"),
        (220, None, "optimizer"),
        (220, 290, "temporary"),
    ],
)
def test_the_phase_that_it_outlives_gives_an_allocation_its_kind(start, end, kind):
    rows = timeline(lived(7, 3, start, end), PHASES, base_mib=5)
    there = at(rows, start + 5)
    assert {name for name in KINDS if there[f"{name}_mib"]} == {"base", kind}
    assert (there[f"{kind}_mib"], there["base_mib"], there["allocated_mib"]) == (3, 5, 8)
    after = rows[-1]
    assert after["allocated_mib"] == (8 if end is None else 5)


def test_an_address_used_again_is_another_allocation():
    rows = timeline(history(lived(7, 3, 10, 150), lived(7, 2, 160, 250)), PHASES, base_mib=0)
    assert at(rows, 20)["activations_mib"] == 3
    assert at(rows, 170)["activations_mib"] == 0
    assert at(rows, 170)["gradients_mib"] == 2
    assert rows[-1]["allocated_mib"] == 0


def test_memory_is_released_when_that_is_requested_not_when_streams_are_done():
    events = [event(10, "alloc", 7, 4), event(50, "free_requested", 7, 4), event(90, "free_completed", 7, 4)]
    rows = timeline(events, PHASES, base_mib=1)
    assert at(rows, 40)["allocated_mib"] == 5
    assert at(rows, 60)["allocated_mib"] == 1
    assert rows[-1]["allocated_mib"] == 1


def test_what_was_there_before_lowers_the_base_once():
    events = [event(120, "free_requested", 99, 6), event(130, "free_completed", 99, 6)]
    events += [event(140, "free_completed", 98, 6)]  # its release was requested before the history began
    rows = timeline(events, PHASES, base_mib=10)
    assert (at(rows, 100)["base_mib"], at(rows, 125)["base_mib"], rows[-1]["base_mib"]) == (10, 4, 4)


def test_events_before_the_first_phase_are_in_the_base():
    rows = timeline(lived(7, 3, -5), PHASES, base_mib=3)
    assert {row["allocated_mib"] for row in rows} == {3}


def test_the_last_bin_holds_what_comes_at_the_very_end():
    rows = timeline(lived(7, 3, 300.0), PHASES, base_mib=1)
    assert [row["allocated_mib"] for row in rows] == [1] * 299 + [4]


def test_reserved_memory_follows_segments_and_is_not_allocated():
    events = [
        event(10, "segment_alloc", 1, 20),
        event(20, "segment_map", 2, 4),
        event(30, "snapshot", 0, 0),
        event(150, "segment_unmap", 2, 4),
        event(250, "segment_free", 1, 20),
    ]
    rows = timeline(events, PHASES, base_mib=0, reserved_mib=2)
    # A bin in which nothing is allocated shows its beginning.
    assert [at(rows, when)["reserved_mib"] for when in (5, 15, 25, 155, 295)] == [2, 22, 26, 22, 2]
    assert {row["allocated_mib"] for row in rows} == {0}


def test_phases_name_moments_and_a_gap_belongs_to_the_phase_before():
    rows = timeline([], PHASES, base_mib=1)
    assert [row["phase"] for row in rows] == ["forward"] * 110 + ["backward"] * 100 + ["optimizer"] * 90
    assert [row["t_ms"] for row in rows] == pytest.approx([0.001 * bin for bin in range(300)])


def test_a_peak_shorter_than_a_bin_survives_at_its_moment():
    events = history(lived(1, 2, 10, 150), lived(2, 50, 33.2, 33.5), lived(3, 1, 33.7, 120))
    peak = timeline(events, PHASES, base_mib=0)[33]
    assert (peak["allocated_mib"], peak["temporary_mib"], peak["activations_mib"]) == (52, 50, 2)
    assert peak["t_ms"] == pytest.approx(0.0332)


@given(st.lists(st.tuples(st.floats(0, 299), st.floats(0.01, 200), st.integers(1, 8)), max_size=20))
def test_any_history_keeps_its_peak_and_returns_to_the_base(lives):
    events = history(*(lived(addr, mib, start, start + took) for addr, (start, took, mib) in enumerate(lives)))
    rows = timeline([e for e in events if e["time_us"] <= 300], PHASES, base_mib=2)
    level, peak = 2, 2
    for e in events:
        level += {"alloc": 1, "free_requested": -1}.get(e["action"], 0) * e["size"] / MIB if e["time_us"] <= 300 else 0
        peak = max(peak, level)
    assert max(row["allocated_mib"] for row in rows) == peak
    for row in rows:
        assert row["allocated_mib"] == sum(row[f"{kind}_mib"] for kind in KINDS)
        assert min(row[f"{kind}_mib"] for kind in KINDS) >= 0


def segment(total: float, *blocks: tuple[str, float]) -> dict:
    made = [{"state": state, "size": int(mib * MIB)} for state, mib in blocks]
    used = sum(block["size"] for block in made if block["state"] == "active_allocated")
    return {"total_size": int(total * MIB), "allocated_size": used, "blocks": made}


def test_fragments_are_largest_first_and_the_rest_is_summed():
    segments = [
        segment(2, ("inactive", 2)),
        segment(20, ("active_allocated", 5), ("inactive", 8), ("active_allocated", 1), ("inactive", 6)),
        segment(2, ("active_allocated", 2)),
        segment(20, ("active_allocated", 17), ("active_awaiting_free", 3)),
    ]
    rows = fragments(segments)
    assert [tuple(row.values()) for row in rows] == [(20, 17, 0, 1), (20, 6, 8, 1), (2, 2, 0, 1), (2, 0, 2, 1)]
    many = fragments([segment(20, ("active_allocated", 20))] * 200 + segments[::2])
    assert many[200:] == [{"segment_mib": 4, "allocated_mib": 2, "largest_free_mib": 2, "segments": 2}]
    assert fragments([]) == []
