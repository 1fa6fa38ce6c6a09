"""The notebooks of one unattended run, one after the other; the report is whole after each of them."""

from __future__ import annotations

import os
from pathlib import Path

from tqdm import tqdm

from labkit.batch.execute import declared_parameters, execute, read_notebook
from labkit.batch.publish import Pages
from labkit.batch.resume import EarlierDurations, is_done, notebook_digest, shared_digest
from labkit.card.measure import measure_card
from labkit.card.options import status_of
from labkit.card.publish import announce, facts_here, machine, print_result, publish_card
from labkit.card.readings import readings_of_runs, runs_launched_for
from labkit.engine.launches import LAUNCHED_FOR
from labkit.report.kept_reports import RECORD, executed_file, keep_earlier_report
from labkit.report.record import INTERRUPTED, OK, Outcome, Record, duration


class Batch:
    """The notebooks of one call.

    rest_of_card: whether the key figures that no notebook measures are measured after the last one.
    """

    def __init__(self, notebooks: list[Path], parameters: dict, report: Path, *, rest_of_card: bool = False):
        self.notebooks, self.report, self.rest_of_card = notebooks, report, rest_of_card
        self.machine = machine()
        self.parameters = {path.stem: declared_or_empty(path, parameters) for path in notebooks}
        shared = shared_digest(self.machine)
        self.codes = {path.stem: notebook_digest(path, shared) for path in notebooks}
        self.pages = Pages(report, notebooks[0].parent)

    def run(self, resume: bool, fail_on: str | None) -> int:
        """Run what is to be run, and give the exit status."""
        durations, to_run = EarlierDurations(self.report, self.machine), self._to_run(resume)
        names = [path.stem for path in to_run]
        announce(keep_earlier_report(self.report, names, only_ok=resume, fresh=self.rest_of_card and not resume))
        record = Record.load(self.report / RECORD)
        record.machine, record.node = self.machine, facts_here()
        remaining = durations.time_left((name, self.parameters[name]) for name in names)
        tqdm.write(", ".join(filter(None, [f"{len(to_run)} of {len(self.notebooks)} notebooks to run", remaining])))
        ran: list[Outcome] = []
        for number, path in enumerate(to_run, 1):
            ahead = durations.time_left((name, self.parameters[name]) for name in names[number - 1 :])
            ran.append(self._execute(path, record, f"[{number}/{len(to_run)}] {path.stem}", ahead))
            rest = durations.time_left((name, self.parameters[name]) for name in names[number:])
            result = f"[{number}/{len(to_run)}] {path.stem}: {ran[-1].status}, {duration(ran[-1].seconds)}"
            tqdm.write("; ".join(filter(None, [result, rest])))
            if ran[-1].status == INTERRUPTED:
                break
        return self._finish(record, ran, fail_on)

    def _to_run(self, resume: bool) -> list[Path]:
        done = Record.load(self.report / RECORD).outcomes if resume else {}
        return [
            path
            for path in self.notebooks
            if not is_done(done.get(path.stem), self.codes[path.stem], self.parameters[path.stem])
        ]

    def _execute(self, path: Path, record: Record, title: str, ahead: str) -> Outcome:
        """Execute a notebook, collect the key figures of its runs, and publish both."""
        name = path.stem
        mark = os.environ[LAUNCHED_FOR] = f"{name}-{os.getpid()}-{os.urandom(4).hex()}"
        bar = {"desc": ", ".join(filter(None, [title, ahead])), "leave": False, "disable": None}
        try:
            outcome = execute(path, executed_file(self.report, name), self.parameters[name], bar)
        finally:
            del os.environ[LAUNCHED_FOR]
        outcome.node, outcome.host, outcome.code = self.machine.label, self.machine.host, self.codes[name]
        readings, outcome.problems = readings_of_runs(runs_launched_for(mark))
        outcome.readings = [reading.record() for reading in readings]
        record.outcomes[name] = outcome
        self.pages.publish(record)
        return outcome

    def _finish(self, record: Record, ran: list[Outcome], fail_on: str | None) -> int:
        interrupted = bool(ran) and ran[-1].status == INTERRUPTED
        if self.rest_of_card and not interrupted:
            shown = {
                (reading["lab"], reading["figure"]) for outcome in record.ordered() for reading in outcome.readings
            }
            record.card_runs = measure_card(tqdm.write, shown=shown)
            record.save(self.report / RECORD)
        record.node = facts_here()  # again: the runs may have shown a fault
        card = publish_card(record, self.report)
        self.pages.publish(record, card)
        print_result(ran, card, self.report)
        if interrupted:
            return 130
        failed = any(outcome.status != OK for outcome in ran) or not self.pages.all_made
        return status_of(card, fail_on) or int(failed)


def declared_or_empty(path: Path, parameters: dict) -> dict:
    """Return those of the parameters that the notebook declares; none of one that cannot be read, which fails later."""
    try:
        return declared_parameters(read_notebook(path), parameters)
    except Exception:
        return {}
