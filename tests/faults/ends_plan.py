"""A lab for the tests of how runs end: each point does well, stands still, or leaves processes behind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from failing_plan import Failing


@dataclass(frozen=True, kw_only=True)
class Ends(Failing):
    """`rank` is the one with the fault; the others wait for it in a collective."""

    lab: ClassVar[str] = "ends"
    worker: ClassVar[str] = "ends_worker"


@dataclass(frozen=True, kw_only=True)
class Changing(Ends):
    """Its worker's module is a file that the test writes anew between launches."""

    lab: ClassVar[str] = "changing"
    worker: ClassVar[str] = "ends_written"
