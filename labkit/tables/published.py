"""Figures as reports printed them, mistakes included: data/published, one CSV a subject."""

from __future__ import annotations

import csv
import functools
from typing import TYPE_CHECKING, Any

from labkit.node import limits
from labkit.provenance import of_source
from labkit.repository import PUBLISHED

if TYPE_CHECKING:
    import pandas as pd

FOUR, EIGHT = "eml3-4xh100", "eml3-8xh100"  # two course reports, by the GPUs of their nodes
# Reports say "H100": this is the one with the fastest tensor cores, and 18 NVLinks.
H100: Any = limits.spec("NVIDIA H100 80GB HBM3")


def published(name: str) -> pd.DataFrame:
    """Return a published table by name, such as "broadcast"; its README says which report each row is from.

    Raises FileNotFoundError, naming what there is.
    """
    import pandas as pd

    file = PUBLISHED / f"{name}.csv"
    if not file.is_file():
        raise FileNotFoundError(f"no published table {name!r}; there are {', '.join(_names('*.csv'))}")
    table = pd.read_csv(file)
    names = [report_names()[report] for report in dict.fromkeys(table["report"])]
    return of_source(table, f"published: {', '.join(names)}")


@functools.cache
def report_names() -> dict[str, str]:
    """Return the name of each report by its identifier: {"cs336-a2": "CS336 write-up", …}."""
    with (PUBLISHED / "reports.csv").open(encoding="utf-8", newline="") as lines:
        return {row["report"]: row["name"] for row in csv.DictReader(lines)}


def published_topology(name: str) -> str:
    """Return the text of `nvidia-smi topo -m` as a report or a node printed it, such as "eml3-4xh100"."""
    file = PUBLISHED / "topology" / f"{name}.txt"
    if not file.is_file():
        raise FileNotFoundError(f"no published topology {name!r}; there are {', '.join(_names('topology/*.txt'))}")
    return file.read_text(encoding="utf-8")


def _names(pattern: str) -> list[str]:
    return sorted(path.stem for path in PUBLISHED.glob(pattern))
