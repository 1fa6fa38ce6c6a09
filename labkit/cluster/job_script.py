"""What a submitted job does itself: it keeps its nodes while there is a station on them.

The stations are steps of the job, which the kernel starts. Where the kernel has gone, no step is left, and the job
ends. This file runs as a script of its own and imports the standard library alone.
"""

import os
import subprocess
import sys
import time

LOOK_SECONDS = 5.0
FIRST_SECONDS = 120.0  # for the first station to come


def count_steps(job: str) -> int:
    """Return how many steps the job has besides its own script; 1 where Slurm does not answer."""
    shown = subprocess.run(
        ["squeue", "--noheader", "--steps", f"--jobs={job}", "-o", "%i"],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
    )
    if shown.returncode:
        return 1
    numbers = [line.strip().rpartition(".")[2] for line in shown.stdout.splitlines()]
    return sum(number.isdecimal() for number in numbers)


def keep_nodes(job: str, keep_seconds: float) -> None:
    """Return when there has been no station for so many seconds."""
    patience, last = max(keep_seconds, FIRST_SECONDS), time.monotonic()
    while time.monotonic() < last + patience:
        time.sleep(LOOK_SECONDS)
        if count_steps(job):
            patience, last = max(keep_seconds, LOOK_SECONDS), time.monotonic()


if __name__ == "__main__":
    keep_nodes(os.environ["SLURM_JOB_ID"], float(sys.argv[1]))
