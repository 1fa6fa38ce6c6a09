"""NVIDIA's nccl-tests, where this machine has them: found, run as programs of their own, their tables read strictly.

https://github.com/NVIDIA/nccl-tests; its "time" is the mean of the calls in flight, in µs, and the mean of the ranks.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import NamedTuple

PROGRAMS = {
    "all-reduce": "all_reduce_perf",
    "all-gather": "all_gather_perf",
    "reduce-scatter": "reduce_scatter_perf",
    "broadcast": "broadcast_perf",
    "all-to-all": "alltoall_perf",
    "send/recv": "sendrecv_perf",
}
_FOLDER = "LABKIT_NCCL_TESTS"
_END = "# Out of bounds values"  # what follows sums up
_WARM_UPS = 5
LIMIT_S = 60.0  # for one program
_ROUNDED = 0.05
_TOLD = r"\s*(#.*|NCCL version .*)?"  # what may stand around the table
_HALF = r"\s+(\S+)\s+(\S+)\s+(\S+)\s+(\S+)"  # time, algbw, busbw, #wrong
_ROW = re.compile(rf"\s*(\d+)\s+\d+\s+\w+(?:\s+[a-z]\w*)?\s+-?\d+{_HALF}{_HALF}\s*")


class TimedHalf(NamedTuple):
    """One half of a line: what a call moves and takes, where its result lies, and how many elements were wrong.

    `wrong` is None where the program does not check: an all-to-all and a send in place.
    """

    message_bytes: int
    placement: str
    seconds: float
    bus_gb_per_s: float
    wrong: int | None


def program(collective: str) -> str | None:
    """Return the program's path: from the folder that LABKIT_NCCL_TESTS names, else from PATH; None where it is not."""
    folders = filter(None, [os.environ.get(_FOLDER), os.environ.get("PATH")])
    return shutil.which(PROGRAMS[collective], path=os.pathsep.join(folders))


def run(path: str, ranks: int, first_bytes: int, last_bytes: int, step: int, calls: int) -> str:
    """Return what the program prints: one process, a thread per GPU, sizes from first to last by a factor.

    Raises ValueError with its last words where it fails, or is not done within LIMIT_S.
    """
    numbers = {"-b": first_bytes, "-e": last_bytes, "-f": step, "-g": 1, "-t": ranks, "-n": calls, "-w": _WARM_UPS}
    command = [path, *(str(word) for option in numbers.items() for word in option)]
    quiet = os.environ | {"NCCL_DEBUG": "VERSION"}
    try:
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", timeout=LIMIT_S, env=quiet, check=False
        )
    except subprocess.TimeoutExpired:
        raise ValueError(f"{os.path.basename(path)} was not done in {LIMIT_S} s") from None
    except OSError as error:
        raise ValueError(f"{os.path.basename(path)} does not start: {error.strerror}") from None
    if done.returncode:
        last_line = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
        raise ValueError(f"{os.path.basename(path)} ended with status {done.returncode}; it said: {last_line}")
    return done.stdout


def parse(text: str, sizes: list[int]) -> list[tuple[TimedHalf, TimedHalf]]:
    """Return one row per line of the table: out of place and in place, for each of the sizes asked for.

    Raises ValueError, quoting the line, for one that is neither of the table nor told around it, and for one of another
    size (a program may leave out a few bytes that its ranks cannot share); and where lines are missing.
    """
    table, ended, _ = text.partition(_END)
    rows = []
    for line in table.splitlines():
        if match := _ROW.fullmatch(line):
            rows.append(_halves(line.strip(), *match.groups()))
        elif not re.fullmatch(_TOLD, line):
            raise ValueError(f"nccl-tests printed a line that is none of its table: {line.strip()!r}")
    if not ended or len(rows) != len(sizes):
        raise ValueError(f"nccl-tests printed {len(rows)} sizes of {len(sizes)}{'' if ended else ' and no end'}")
    for size, (half, _) in zip(sizes, rows, strict=True):
        if not (1 - _ROUNDED) * size <= half.message_bytes <= size:
            raise ValueError(f"nccl-tests printed {half.message_bytes} bytes, not {size}")
    return rows


def version(text: str) -> str:
    """Return the versions that the program prints of itself and of NCCL; "" for old ones, which print none."""
    match = re.search(r"^# nccl-tests version (.*)$", text, re.MULTILINE)
    return match[1].strip() if match else ""


def _halves(line: str, size: str, *numbers: str) -> tuple[TimedHalf, TimedHalf]:
    try:
        return _timed_half(int(size), "out of place", *numbers[:4]), _timed_half(int(size), "in place", *numbers[4:])
    except ValueError:
        raise ValueError(f"nccl-tests printed a line with no numbers: {line!r}") from None


def _timed_half(size: int, placement: str, time_us: str, algorithm: str, bus: str, wrong: str) -> TimedHalf:
    float(algorithm)
    return TimedHalf(size, placement, float(time_us) / 1e6, float(bus), None if wrong == "N/A" else int(float(wrong)))
