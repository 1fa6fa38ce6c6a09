"""What a launch took and gave back: processes, GPU memory, and who else was there."""

from __future__ import annotations

import os
from typing import Any

from labkit import node
from labkit.engine.errors import DamagedRun
from labkit.engine.lines import content
from labkit.engine.processes import members
from labkit.engine.reservation import Reservation
from labkit.engine.run import Run

LAUNCHED_FOR = "LABKIT_LAUNCHED_FOR"  # set for a notebook that runs unattended: its runs are found again by it
GROWN_MIB = 100  # more memory in use after a launch than before: another program has come meanwhile


class Receipt:
    """Made before the workers start; `fields` afterwards gives what goes into the run's status."""

    def __init__(self, run: Run, reservation: Reservation):
        self.run, self.reservation = run, reservation
        self.gpus = run.node.gpus[: run.plan.gpus] if run.plan.device == "cuda" else ()
        self.before_mib = node.used_mib(self.gpus)

    def fields(self) -> dict[str, Any]:
        """Return processes started and left, GPU memory in use before and after (MiB, by index), and other holders.

        `contaminated` has the indices of GPUs that other programs held before or after the launch; `launched_for`,
        where it is there, the unattended run that the launch belongs to.
        """
        more = self.more()
        return {
            "measured": self.run.tally(),
            "processes_started": sum(map(self.started, range(self.run.plan.gpus))),
            "processes_left": self.processes_left(),
            **more,
            **launched_for(),
        }

    def processes_left(self) -> int:
        """Return how many processes of the run live."""
        return len(members(self.run))

    def more(self) -> dict[str, Any]:
        """Return GPU memory and other holders."""
        after_mib = node.used_mib(self.gpus)
        if any(mib > self.before_mib.get(gpu, mib) + GROWN_MIB for gpu, mib in after_mib.items()) or not self.gpus:
            self.reservation.look_again()
        return {
            "gpu_mib_before": {str(gpu): mib for gpu, mib in self.before_mib.items()},
            "gpu_mib_after": {str(gpu): mib for gpu, mib in after_mib.items()},
            "held_by_others": self.reservation.held,
            "contaminated": sorted(self.reservation.shared),
        }

    def started(self, rank: int) -> int:
        """Return how many processes were started as this rank."""
        try:
            return content(self.run.events_file(rank)).count(b'"event": "started"')
        except (OSError, DamagedRun):
            return 0


def launched_for() -> dict[str, str]:
    """Return the unattended run that this process belongs to, as `launched_for`; {} where there is none."""
    return {"launched_for": os.environ[LAUNCHED_FOR]} if LAUNCHED_FOR in os.environ else {}
