"""Reports are kept by date: before a run replaces something in runs/report, the report moves to runs/reports/<date>."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from labkit.engine.files import make_private
from labkit.report.record import OK, Record

RECORD = "record.json"
EXECUTED, SHARED_FILES = "notebooks", "_static"  # folders of a report: executed notebooks, what all its pages load


def reports_folder(report: Path) -> Path:
    """Return where the earlier reports of this one are kept: runs/reports beside runs/report."""
    return report.with_name(f"{report.name}s")


def executed_file(report: Path, name: str) -> Path:
    """Return the executed copy of a notebook."""
    return report / EXECUTED / f"{name}.ipynb"


def keep_earlier_report(
    report: Path, names: Iterable[str], *, fresh: bool = False, only_ok: bool = False
) -> Path | None:
    """Move the report to where it is kept, if a run of these notebooks would replace something; return where.

    What is not replaced stays in the new report, too. `fresh`: the new report begins empty. `only_ok`: a notebook that
    failed or was interrupted is nothing to keep.
    """
    record, wanted = Record.load(report / RECORD), set(names)
    replaced = {
        outcome.name for outcome in record.ordered() if outcome.name in wanted and (outcome.status == OK or not only_ok)
    }
    something = record.outcomes or record.card_runs.started or (report / "index.html").exists()
    if not something or not (fresh or replaced or not record.last_start()):
        return None
    kept = _unused_name(reports_folder(report), _date_of(record, report))
    make_private(kept.parent)
    report.rename(kept)
    make_private(report)
    _link(kept / SHARED_FILES, report / SHARED_FILES)
    if not fresh:
        _link(kept / EXECUTED, report / EXECUTED)
        for name in wanted:
            executed_file(report, name).unlink(missing_ok=True)
        record.outcomes = {name: outcome for name, outcome in record.outcomes.items() if name not in wanted}
        record.save(report / RECORD)
    return kept


def _link(kept: Path, new: Path) -> None:
    """Give the new report the files of a folder: what is written anew has a file of its own, and the kept one stays."""
    if kept.is_dir():
        shutil.copytree(kept, new, copy_function=os.link)


def _date_of(record: Record, report: Path) -> str:
    """Return the date of a report as its kept folder is named: when its last part was started."""
    started = record.last_start()
    try:
        date = datetime.fromisoformat(started)
    except ValueError:
        date = datetime.fromtimestamp((report / "index.html").stat().st_mtime)
    return f"{date:%Y%m%d-%H%M%S}"


def _unused_name(folder: Path, name: str) -> Path:
    """Return the folder of this name, or with a number after it: a clock that was set back may give a name twice."""
    names = itertools.chain([name], (f"{name}-{number}" for number in itertools.count(1)))
    return next(path for path in map(folder.joinpath, names) if not path.exists())


def all_reports(report: Path) -> list[Path]:
    """Return the kept reports in the order of their dates, then the present one; those that exist."""
    kept = sorted(path for path in reports_folder(report).glob("*") if path.is_dir())
    return [*kept, *([report] if report.is_dir() else [])]
