"""What a student's `timed` does with a simulated device.

Imports nothing of labkit but the device and how a function's result is read: it also runs where an answer is graded.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

from labkit.engine.called_function import Prints, Unreadable, as_json
from lessons.benchmarking.theory.device import MESSAGE, Device


def drive(timed: Callable[..., Any], situation: str, scale: float = 1.0) -> dict[str, Any]:
    """Return what `timed` gave for one kind of step, and its `calls` of the device, a letter each."""
    device, prints = Device(situation, scale), Prints()
    seen: dict[str, Any] = {}
    try:
        with redirect_stdout(prints):
            seen["given"] = as_json(timed(device.step, device.synchronize, device.clock))
    except Unreadable as error:
        seen["unreadable"] = str(error)
    except RuntimeError as error:
        if MESSAGE not in str(error) or not device.failed:
            raise
        seen["raised"] = type(error).__name__
    return seen | prints.column() | {"calls": "".join(device.calls)}
