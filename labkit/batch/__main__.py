"""The command line: run notebooks in order, keep going when one fails, and leave a report of what ran."""

if __name__ == "__main__":  # the imports below take seconds, in which somebody may think better of it
    from labkit.engine.interrupts import leave_when_interrupted

    leave_when_interrupted()

import argparse
import ast
import os
import signal
import sys
from pathlib import Path

from tqdm import tqdm

from labkit.batch.publish import rebuild
from labkit.batch.run import Batch
from labkit.card.options import add_arguments, check_criteria
from labkit.engine.files import make_private
from labkit.engine.interrupts import INTERRUPTED, heed_interrupts
from labkit.engine.launch_settings import nodes_wanted
from labkit.engine.locks import NoLocksFolder
from labkit.engine.plan import PARAMETERS, require_parameters
from labkit.report.kept_reports import RECORD
from labkit.report.node_lock import NodeHeld, hold_node
from labkit.report.record import Record
from labkit.repository import NOTEBOOKS, chosen_notebooks


def main(arguments: list[str] | None = None) -> int:
    """Run what the arguments ask for; return 0, 1 where a notebook failed, 2 for a wrong call and where another run
    holds the node, 3 where --fail-on applies, 130 if interrupted."""
    parser = _parser()
    chosen = parser.parse_args(arguments)
    check_criteria(parser)
    report = chosen.report.resolve()
    try:
        parameters = _parameters(chosen.parameter)
        if nodes_wanted(chosen.nodes):
            os.environ["LABKIT_NODES"] = str(nodes_wanted(chosen.nodes))
        notebooks = chosen_notebooks(chosen.notebooks, chosen.notebooks_folder.resolve())
        make_private(report)
    except ValueError as error:
        parser.error(str(error))
    except OSError as error:
        parser.error(f"{report} cannot be written ({error.strerror}): set LABKIT_RUNS, or name a folder with --report")
    heed_interrupts()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a scheduler's time limit: the report is still written
    measures = parameters.get("size") not in ("small", "recorded")
    as_usual = measures and not parameters.get("gpus") and not os.environ.get("LABKIT_NODES")
    every = not chosen.notebooks and chosen.notebooks_folder == NOTEBOOKS and as_usual
    try:
        if chosen.report_only:
            return rebuild(Record.load(report / RECORD), notebooks, report)
        with hold_node(chosen.wait, tqdm.write):
            return Batch(notebooks, parameters, report, rest_of_card=every).run(chosen.resume, chosen.fail_on)
    except (NodeHeld, NoLocksFolder) as error:
        parser.exit(2, f"{error}\n")
    except OSError as error:
        parser.exit(2, f"{report} cannot be written any more ({error.strerror}); what ran before is kept in it\n")
    except KeyboardInterrupt:
        print("interrupted; `make run ARGS=--resume` goes on from what the report has", file=sys.stderr)
        return INTERRUPTED


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
        help="set a notebook's parameter: size (auto, small, full, recorded), gpus, seeds; may be repeated",
    )
    parser.add_argument("--nodes", type=int, help="run every launch on so many nodes (labkit/cluster/README.md)")
    parser.add_argument("--report-only", action="store_true", help="rebuild the pages of what ran, run nothing")
    parser.add_argument(
        "--resume", action="store_true", help="leave out what the report has done with the same code and parameters"
    )
    add_arguments(parser)
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


if __name__ == "__main__":
    sys.exit(main())
