"""The command line: run notebooks in order, keep going when one fails, and leave a report of what ran."""

import argparse
import ast
import os
import signal
import sys
from pathlib import Path

from tqdm import tqdm

from labkit.engine.folder import runs_folder
from labkit.engine.plan import PARAMETERS, require_parameters
from labkit.engine.workplace import nodes_wanted
from labkit.node import here
from labkit.repository import REPOSITORY

from .claims import write_claims
from .execute import execute
from .glossary import write_glossary
from .index import duration, summary, write_index
from .pages import write_page
from .record import FAILED, INTERRUPTED, OK, Machine, Outcome, Record

NOTEBOOKS = REPOSITORY / "notebooks"


def main(arguments: list[str] | None = None) -> int:
    """Runs what the arguments ask for; gives 0, 1 where a notebook failed, 2 for a wrong call, 130 if interrupted."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    report = chosen.report.resolve()
    try:
        parameters = _parameters(chosen.parameter)
        if nodes_wanted(chosen.nodes):
            os.environ["LABKIT_NODES"] = str(nodes_wanted(chosen.nodes))
        notebooks = select(chosen.notebooks_folder.resolve(), chosen.notebooks)
        report.mkdir(parents=True, exist_ok=True)
    except ValueError as error:
        parser.error(str(error))
    except OSError as error:
        parser.error(f"{report} cannot be written ({error.strerror}): set LABKIT_RUNS, or name a folder with --report")
    record = Record.load(report / "record.json")
    if chosen.report_only:
        return _rebuild(record, notebooks, report)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a scheduler's time limit: the report is still written
    return _run_all(notebooks, parameters, record, report)


def select(folder: Path, names: list[str]) -> list[Path]:
    """Return the notebooks of `folder` in order: all NN_*.ipynb, or those named ("02", "02_broadcast", a path).

    ValueError for a name that fits none, with the names that there are.
    """
    known = sorted(folder.glob("[0-9][0-9]_*.ipynb"))
    stems = ", ".join(path.stem for path in known) or "none"
    if not known:
        raise ValueError(f"no notebooks (NN_name.ipynb) in {folder}")
    wanted = set()
    for name in names:
        stem = Path(name).name.removesuffix(".ipynb")
        matching = [path for path in known if stem in (path.stem, *path.stem.split("_", 1))]
        if not matching:
            raise ValueError(f"no notebook {name!r}; there are: {stems}")
        wanted.update(matching)
    return [path for path in known if not names or path in wanted]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m labkit.batch", description=__doc__)
    parser.add_argument("notebooks", nargs="*", help="notebooks to run, as 02 or 02_broadcast (default: all)")
    parser.add_argument(
        "-p",
        "--parameter",
        nargs=2,
        action="append",
        default=[],
        metavar=("NAME", "VALUE"),
        help="set a notebook's parameter: size (auto, small, full), gpus, seeds; may be repeated",
    )
    parser.add_argument("--nodes", type=int, help="run every launch on so many nodes of a Slurm cluster (README)")
    parser.add_argument("--report-only", action="store_true", help="rebuild the pages of what ran, run nothing")
    parser.add_argument("--report", type=Path, default=runs_folder() / "report", help="the report's folder")
    parser.add_argument("--notebooks-folder", type=Path, default=NOTEBOOKS, help="where the notebooks are")
    return parser


def _parameters(pairs: list[list[str]]) -> dict:
    """Return the parameters by name, numbers as numbers; ValueError for a name or a value that no notebook can have."""
    parameters = {}
    for name, text in pairs:
        if name not in PARAMETERS:
            raise ValueError(f"no parameter {name!r}; there are: {', '.join(PARAMETERS)}")
        try:
            parameters[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            parameters[name] = text
    require_parameters(*({"size": "auto", "gpus": 0, "seeds": 0} | parameters).values())
    return parameters


def _run_all(notebooks: list[Path], parameters: dict, record: Record, report: Path) -> int:
    """Runs the notebooks one after the other; the report is whole after each of them."""
    record.machine = _machine()
    write_claims(report / "claims.html")
    names = {*record.outcomes, *(path.stem for path in notebooks)}
    ran = []
    for number, path in enumerate(notebooks, 1):
        bar = {"desc": f"[{number}/{len(notebooks)}] {path.stem}", "leave": False, "disable": None}
        outcome = execute(path, _executed(report, path.stem), parameters, bar)
        outcome.node = record.machine.label
        _publish(outcome, path.parent, record, report, names)
        ran.append(outcome)
        tqdm.write(f"[{number}/{len(notebooks)}] {outcome.name}: {outcome.status}, {duration(outcome.seconds)}")
        if outcome.status == INTERRUPTED:
            break
    _print_table(ran, report)
    if ran[-1].status == INTERRUPTED:
        return 130
    return int(any(outcome.status != OK for outcome in ran))


def _rebuild(record: Record, notebooks: list[Path], report: Path) -> int:
    """Writes the pages anew from the executed notebooks; gives 1 where nothing ran yet."""
    known = {path.stem: path for path in notebooks}
    again = [outcome for outcome in record.ordered() if outcome.name in known]
    if not again:
        print(f"nothing ran yet: {report} holds no executed notebook; `make run` makes them", file=sys.stderr)
        return 1
    write_claims(report / "claims.html")
    for outcome in again:
        _publish(outcome, known[outcome.name].parent, record, report, {*record.outcomes})
    _print_table(again, report)
    return 0


def _publish(outcome: Outcome, folder: Path, record: Record, report: Path, names: set[str]) -> None:
    """Writes the outcome's page, the record and the index; a page that needs a network fails its notebook.

    `names` are the notebooks that have a page in this report, or will have one.
    """
    write_glossary(folder, report)
    executed = _executed(report, outcome.name)
    if executed.exists():
        loads = write_page(executed, report / f"{outcome.name}.html", outcome, folder, names)
        if loads and outcome.status == OK:
            outcome.status, outcome.why = FAILED, f"its page needs files from elsewhere: {', '.join(loads)}"
    record.outcomes[outcome.name] = outcome
    record.save(report / "record.json")
    write_index(record, report / "index.html")


def _executed(report: Path, name: str) -> Path:
    return report / "notebooks" / f"{name}.ipynb"


def _machine() -> Machine:
    node = here()
    table = node.table()
    facts = dict(zip(table["property"], table["value"], strict=True))
    facts.pop("software", None)  # all versions follow
    return Machine(node.label, {name: value for name, value in facts.items() if value != "–"}, dict(node.versions))


def _print_table(outcomes: list[Outcome], report: Path) -> None:
    width = max(len(outcome.name) for outcome in outcomes)
    print()
    for outcome in outcomes:
        why = outcome.why.splitlines()[0] if outcome.why else ""
        print(f"{outcome.name:<{width}}  {outcome.seconds:>7.1f} s  {outcome.status:<11}  {why}".rstrip())
    print(f"\n{summary(outcomes)}\nreport: {report / 'index.html'}")


if __name__ == "__main__":
    sys.exit(main())
