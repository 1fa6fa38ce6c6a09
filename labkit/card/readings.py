"""A run → the key figures that it shows; the recorded runs of a GPU model → the reference beside which they stand."""

from __future__ import annotations

import functools
import importlib
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from labkit.engine.recordings import replay
from labkit.engine.run import Run
from labkit.engine.run_folder import runs_folder
from labkit.node.comparability import key_conditions
from labkit.repository import RECORDED, lesson_names
from labkit.tables.measures import Measure, Measured, measures_of


@dataclass(frozen=True, kw_only=True)
class Reading(Measured):
    """A key figure as one run shows it, ready for JSON: which figure, what was measured, its run and conditions.

    run: the folder's name, below data/recorded for a recorded one. date: ISO, with the time where it is known. seconds:
    the time that the run took, shared among its figures. small: whether the run is of the small size. model: of the
    run's GPUs, "" on a CPU. conditions: the key figures of the run's conditions, as labkit.node.comparability gives
    them. shared: whether another program held the run's GPUs, too.
    """

    lab: str
    figure: str
    unit: str
    run: str = ""
    date: str = ""
    seconds: float = 0.0
    small: bool = False
    model: str = ""
    conditions: dict[str, Any] = field(default_factory=dict)
    shared: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return self.lab, self.figure

    def record(self) -> dict[str, Any]:
        """Return the reading as JSON holds it."""
        return known(asdict(self))

    @property
    def measured(self) -> bool:
        """Whether there is a value."""
        return math.isfinite(self.value)

    @property
    def has_limit(self) -> bool:
        """Whether physics' limit is known."""
        return not math.isnan(self.limit)


def known(values: dict[str, Any]) -> dict[str, Any]:
    """Return what is known of a reading's fields as JSON holds them: no NaN, and no None of older records."""
    return {
        name: value
        for name, value in values.items()
        if value is not None and not (isinstance(value, float) and not math.isfinite(value))
    }


@functools.cache
def key_figures() -> dict[str, tuple[Measure, ...]]:
    """Return the key figures of each lab that has some, in the order of their notebooks."""
    figures: dict[str, tuple[Measure, ...]] = {}
    for lab in lesson_names():
        figures[lab] = tuple(measure for measure in measures_of(lab) if measure.on_card)
    return {lab: several for lab, several in figures.items() if several}


def card_plans() -> list[Any]:
    """Return what `make card` measures on this node, lab after lab."""
    return [plan for lab in key_figures() for plan in getattr(_module(lab), "card_plans", list)()]


def soak_plans(minutes: int) -> list[Any]:
    """Return what `make card ARGS="--soak 15"` launches besides, for so many minutes."""
    modules = [_module(lab) for lab in key_figures()]
    return [module.soak_plan(minutes) for module in modules if hasattr(module, "soak_plan")]


def figures_of(plan: Any) -> list[tuple[str, str]]:
    """Return the key figures, as (lab, name), that runs of this plan show."""
    return [(plan.lab, figure.name) for figure in key_figures().get(plan.lab, ()) if figure.plan == plan.name]


def _module(lab: str) -> Any:
    return importlib.import_module(f"lessons.{lab}.measures")


def readings(run: Run) -> list[Reading]:
    """Return the key figures that the run shows; none of a run whose lab or plan has none."""
    figures = [figure for figure in key_figures().get(run.plan.lab, ()) if figure.plan == run.plan.name]
    if not figures:
        return []
    of_run = {"cores": run.node.cores} | key_conditions(run.conditions())
    conditions = {name: _python_number(value) for name, value in of_run.items()}
    shown = {figure: measured for figure in figures if (measured := figure.of(run)) is not None}
    seconds = run.status.get("seconds", 0.0) / max(1, len(shown))
    return [_reading(run, figure, measured, conditions, seconds) for figure, measured in shown.items()]


def _reading(run: Run, figure: Measure, measured: Measured, conditions: dict[str, Any], seconds: float) -> Reading:
    recorded = run.folder.is_relative_to(RECORDED)
    on_gpus = run.plan.device == "cuda"
    return Reading(
        **vars(measured),
        lab=run.plan.lab,
        figure=figure.name,
        unit=figure.unit,
        run=str(run.folder.relative_to(RECORDED)) if recorded else run.folder.name,
        date=_date(run, recorded),
        seconds=seconds,
        small=run.plan.size == "small",
        model=(run.node.gpus[0].name or "") if on_gpus and run.node.gpus else "",
        conditions=conditions,
        shared=bool(run.status.get("contaminated")),
    )


def _date(run: Run, recorded: bool) -> str:
    """Return when the run was made: the day of a recorded one, else day and time, from its folder's name."""
    name = run.folder.name
    if not recorded and name[:8].isdigit() and name[9:15].isdigit():
        day, time = name[:8], name[9:15]
        return f"{day[:4]}-{day[4:6]}-{day[6:]}T{time[:2]}:{time[2:4]}:{time[4:]}"
    return str(run.status.get("date", run.node.date))


def _python_number(value: Any) -> Any:
    """Return a number without pandas' or NumPy's type."""
    return value.item() if hasattr(value, "item") else value


def readings_of_runs(runs: Iterable[Run]) -> tuple[list[Reading], list[str]]:
    """Return the readings of all runs, and a sentence for each run that cannot be read."""
    all_readings: list[Reading] = []
    problems = []
    for run in runs:
        try:
            all_readings += readings(run)
        except Exception as error:  # a damaged folder costs its own figures, not the card
            problems.append(f"{run.folder.name} cannot be read: {_first_line(error)}")
    return all_readings, problems


def references(model: str, folder: Path = RECORDED) -> tuple[list[Reading], list[str]]:
    """Return the readings of the recorded runs on this GPU model, and a sentence for each that cannot be read."""
    all_readings: list[Reading] = []
    problems = []
    for file in sorted(folder.rglob("plan.json")):
        name = str(file.parent.relative_to(folder))
        try:
            if _shows_figures(file) and _model(file.parent) == model:
                all_readings += readings(replay(file.parent))
        except Exception as error:
            problems.append(f"the recorded run {name} cannot be read: {_first_line(error)}")
    return all_readings, problems


def _shows_figures(plan_file: Path) -> bool:
    """Return whether a recorded plan is one whose runs show key figures; its rows are not read for that."""
    stored = json.loads(plan_file.read_text(encoding="utf-8"))
    module, _, kind = str(stored["plan"]).partition(":")
    lab = module.split(".")[1] if module.startswith("lessons.") else ""
    return stored.get("device") == "cuda" and any(figure.plan == kind.lower() for figure in key_figures().get(lab, ()))


def _model(folder: Path) -> str:
    gpus = Run(folder).node.gpus
    return (gpus[0].name or "") if gpus else ""


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"[:300]


def runs_launched_for(mark: str) -> Iterator[Run]:
    """Return the finished runs whose status says that they were launched for `mark`, the oldest first."""
    for folder in sorted(runs_folder().glob("*-*")):
        run = Run(folder)
        if run.status_file.exists() and run.status.get("launched_for") == mark and run.status["state"] == "finished":
            yield run
