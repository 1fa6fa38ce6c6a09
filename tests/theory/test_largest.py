"""The largest allocations: by size, phase and line of the workbook's own code."""

from labkit.repository import REPOSITORY
from labkit.theory.allocations import largest
from labkit.theory.sizes import MIB

MODEL = str(REPOSITORY / "labkit" / "worker" / "transformer.py")
PHASES = [("forward", 0.0, 100.0), ("backward", 110.0, 200.0)]


def event(when: float, mib: float, *lines: tuple[str, int], action: str = "alloc") -> dict:
    frames = [{"filename": name, "line": line, "name": "forward"} for name, line in lines]
    return {"time_us": when, "action": action, "addr": int(when), "size": int(mib * MIB), "frames": frames}


def test_one_size_in_one_phase_by_one_line_is_one_row():
    inside = "/usr/lib/python3/site-packages/torch/nn/functional.py"
    events = [
        event(-5, 99, (MODEL, 1)),
        event(10, 3, (inside, 7), (MODEL, 1)),
        event(20, 3, (MODEL, 1)),
        event(30, 3, (MODEL, 1), action="free_requested"),
        event(40, 2, (MODEL, 3)),
        event(150, 3, (inside, 7)),
    ]
    found = [(row["size_mib"], row["count"], row["phase"], row["line"]) for row in largest(events, PHASES)]
    assert found == [
        (3, 2, "forward", "worker/transformer.py:1"),
        (3, 1, "backward", ""),
        (2, 1, "forward", "worker/transformer.py:3"),
    ]
    assert largest(events, PHASES)[0]["source"].startswith('"""The course')
    sizes = [row["size_mib"] for row in largest([event(10, mib) for mib in range(1, 21)], PHASES)]
    assert sizes == [*range(20, 8, -1)]
