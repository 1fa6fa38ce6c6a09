"""Where a table's numbers come from: attached when the table is made, read when it is drawn or explained.

pandas keeps such facts in `DataFrame.attrs`, which it calls experimental: merging or concatenating tables may drop
them. Only this module touches them, and it says so when they are lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from labkit.node.comparability import Difference, differences_between

if TYPE_CHECKING:
    import pandas as pd


class MeasuredRun(Protocol):
    """What is asked of a run: `labkit.engine.run.Run` is one."""

    @property
    def plan(self) -> Any: ...

    @property
    def source(self) -> str: ...

    @property
    def gaps(self) -> str: ...

    @property
    def recorded(self) -> bool: ...

    def key_conditions(self) -> dict[str, Any]: ...


class ProvenanceLost(LookupError):
    """A table no longer carries a fact that it was made with."""


class _SharedFacts(dict[str, Any]):
    """Facts that copies of a table share. pandas copies them deeply with every operation, and they do not change."""

    def __deepcopy__(self, memo: object) -> _SharedFacts:
        return self


def of_run(table: pd.DataFrame, run: MeasuredRun, **facts: Any) -> pd.DataFrame:
    """Return the table, marked as measured by the run, with `facts`.

    Of the run: source, recorded, gaps (points that are missing), small, middle, on_cpu (processes stood in for GPUs),
    ranks, conditions (key figures).
    """
    plan, conditions = run.plan, _SharedFacts(run.key_conditions())
    of_the_run = {"source": run.source, "recorded": run.recorded, "on_cpu": plan.device == "cpu"}
    of_the_run |= {size: plan.size == size for size in ("small", "middle")}
    of_the_run |= {"gaps": run.gaps, "ranks": plan.gpus, "conditions": conditions}
    return of_source(table, **(of_the_run | facts))


def of_source(table: pd.DataFrame, source: str, **facts: Any) -> pd.DataFrame:
    """Return the table, marked as coming from `source` (a report, a formula), with further `facts`."""
    table.attrs = {"source": source, "small": False, "on_cpu": False, **facts}
    return table


def made_from(table: pd.DataFrame, *others: pd.DataFrame, **facts: Any) -> pd.DataFrame:
    """Return the table, marked as made from `others`: the first one's facts, the sources of all, and `facts`."""
    table.attrs = {**others[0].attrs, "source": sources(*others), **facts}
    return table


def fact(table: pd.DataFrame, name: str) -> Any:
    """Return a fact of the table. Raises ProvenanceLost where the table does not carry it."""
    if name not in table.attrs:
        kept = ", ".join(table.attrs) or "none"
        how = "mark it with of_run(table, run), and after a merge with made_from(table, …)"
        raise ProvenanceLost(f"this table carries no {name!r} (it carries: {kept}): {how}")
    return table.attrs[name]


def fact_or(table: pd.DataFrame, name: str, default: Any) -> Any:
    """Return a fact of the table, or `default` where it does not carry it."""
    return table.attrs.get(name, default)


def sources(*tables: pd.DataFrame | None) -> str:
    """Return the sources of the tables, each once, for a footer; tables that are None are left out.

    Runs on one kind of machine are followed by what differs between their conditions.
    """
    given = [table for table in tables if table is not None]
    texts = dict.fromkeys(fact(table, "source") for table in given)
    return " · ".join([*texts, *dict.fromkeys(difference.short for difference in condition_differences(*given))])


def condition_differences(*tables: pd.DataFrame) -> list[Difference]:
    """Return how the conditions of the tables' runs differ from those of the first table that has any."""
    conditions = [table.attrs["conditions"] for table in tables if table.attrs.get("conditions")]
    return [difference for other in conditions[1:] for difference in differences_between(conditions[0], other)]


def is_recorded(table: pd.DataFrame) -> bool:
    """Say whether the numbers come from a run that the project keeps, rather than from this node."""
    return fact_or(table, "recorded", False)


def run_name(table: pd.DataFrame) -> str:
    """Return whose run a title names: "Recorded run" or "This run"."""
    return "Recorded run" if is_recorded(table) else "This run"


def place_name(table: pd.DataFrame) -> str:
    """Return where a sentence says that the numbers are from: "in the recorded run" or "here"."""
    return "in the recorded run" if is_recorded(table) else "here"


def by_place(here: pd.DataFrame, recorded: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the tables by where a sentence says that they are from; a replay of the recorded run is not said twice."""
    this_run = {} if fact(here, "source") == fact(recorded, "source") else {"here": here}
    return this_run | {"in the recorded run": recorded}


def where(table: pd.DataFrame) -> str:
    """Return where the numbers come from: "Here, small size", "Recorded, full size", "Theory" or "Published"."""
    if (kind := fact(table, "source").partition(":")[0]) in ("theory", "published"):
        return kind.capitalize()
    place = "Recorded" if is_recorded(table) else "Here"
    return f"{place}, {size_name(table)} size"


def size_name(table: pd.DataFrame) -> str:
    """Return the size of the table's run: "small", "middle" or "full"."""
    return "small" if fact(table, "small") else "middle" if fact_or(table, "middle", False) else "full"
