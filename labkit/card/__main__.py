"""`make card`: measures what the node's card needs, and nothing else; writes the card as runs/report/index.html."""

from __future__ import annotations

if __name__ == "__main__":  # the imports below take seconds, in which somebody may think better of it
    from labkit.engine.interrupts import leave_when_interrupted

    leave_when_interrupted()

import argparse
import signal
import sys
from dataclasses import asdict
from pathlib import Path

from tqdm import tqdm

from labkit.card.cards import headline
from labkit.card.measure import measure_card
from labkit.card.on_nodes import NoFleet, make_fleet, place_of_node
from labkit.card.options import add_arguments, check_criteria, status_of
from labkit.card.publish import announce, facts_here, machine, print_result, publish_card, write_card_pages
from labkit.card.readings import key_figures
from labkit.card.soak import findings_of, soak_of
from labkit.engine.files import make_private
from labkit.engine.interrupts import INTERRUPTED, heed_interrupts
from labkit.engine.locks import NoLocksFolder
from labkit.node import here, why_no_gpu_is_visible
from labkit.report.kept_reports import RECORD, keep_earlier_report
from labkit.report.node_lock import NodeHeld, hold_node
from labkit.report.record import Record


def main(arguments: list[str] | None = None) -> int:
    """Measure and write the card; give 0, 3 where --fail-on applies, 2 where another run holds the node, 130 if
    interrupted."""
    parser = argparse.ArgumentParser(prog="make card", description=__doc__)
    parser.add_argument("labs", nargs="*", help=f"only these labs' figures: {', '.join(key_figures())}")
    add_arguments(parser)
    parser.add_argument(
        "--soak", type=whole_number, default=0, metavar="MINUTES", help="also load all GPUs for so long (15, say)"
    )
    parser.add_argument(
        "--nodes",
        type=whole_number,
        default=0,
        help="the cards of so many nodes of this Slurm allocation, side by side",
    )
    parser.add_argument("--of-fleet", type=Path, help=argparse.SUPPRESS)  # this process is one of them
    chosen = parser.parse_args(arguments)
    unknown = [lab for lab in chosen.labs if lab not in key_figures()]
    if unknown:
        parser.error(f"no lab {unknown[0]!r} with key figures; there are: {', '.join(key_figures())}")
    check_criteria(parser)
    if chosen.soak and not chosen.nodes and not here().has_gpus:
        parser.error(f"--soak loads GPUs, and there is none: {why_no_gpu_is_visible()}")
    report = chosen.report.resolve()
    heed_interrupts()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if chosen.of_fleet:
        report = place_of_node(chosen.of_fleet)
    try:
        if chosen.nodes:
            options = [*chosen.labs, *(["--wait"] if chosen.wait else [])]
            options += ["--soak", str(chosen.soak)] if chosen.soak else []
            return make_fleet(chosen.nodes, report, options, chosen.fail_on)
        with hold_node(chosen.wait, tqdm.write):
            return _make(report, chosen)
    except (NodeHeld, NoLocksFolder, NoFleet) as error:
        parser.exit(2, f"{error}\n")
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except OSError as error:
        parser.error(f"{report} cannot be written ({error.strerror}): set LABKIT_RUNS, or name a folder with --report")


def _make(report: Path, chosen: argparse.Namespace) -> int:
    announce(keep_earlier_report(report, (), fresh=True))
    make_private(report)
    record = Record(machine=machine(), node=facts_here())
    progress = {"progress": sys.stderr.isatty(), "soak_minutes": chosen.soak}
    record.card_runs = measure_card(tqdm.write, labs=chosen.labs or None, **progress)
    record.node = facts_here()  # again: the measurements may have shown a fault
    if soak := soak_of(record):
        record.node["findings"] = [*map(asdict, findings_of(soak)), *record.node["findings"]]
    record.save(report / RECORD)
    card = publish_card(record, report)
    write_card_pages(card, record, report)
    print(headline(card)) if chosen.of_fleet else print_result([], card, report)
    if "interrupted" in record.card_runs.why_not.values():
        return INTERRUPTED
    return status_of(card, chosen.fail_on)


def whole_number(text: str) -> int:
    """Return a whole number, one at least; argparse shows the sentence for any other text."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
