"""The student's copies: `make lab` brings them up to date, `make reset NB=02` makes one as it was handed out."""

import argparse
import sys
from pathlib import Path

from labkit.course import copies


def main(arguments: list[str] | None = None) -> int:
    """Do what the arguments ask for; return 0, or 2 with a sentence where that is not possible."""
    parser = argparse.ArgumentParser(prog="python -m labkit.tools.work", description=__doc__)
    parser.add_argument("--folder", type=Path, default=copies.folder(), help="the folder of the copies")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("refresh", help="bring all copies up to date")
    reset = commands.add_parser("reset", help="replace a copy by the notebook, and put it aside")
    reset.add_argument("notebook", nargs="?", default="", help="as 02, or 02_broadcast")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.command == "reset":
            print(copies.reset(chosen.folder, chosen.notebook))
        else:
            _say(copies.refresh(chosen.folder), chosen.folder)
    except ValueError as error:
        print(f"make reset NB=…: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{chosen.folder} cannot be written ({error.strerror}): set LABKIT_WORK to another", file=sys.stderr)
        return 2
    return 0


def _say(sentences: list[str], folder: Path) -> None:
    new = sum(sentence.endswith(": new") for sentence in sentences)
    if new:
        print(f"{folder}: {new} new copies of the notebooks; git ignores them")
    for sentence in sentences:
        if not sentence.endswith(": new"):
            print(sentence)


if __name__ == "__main__":
    sys.exit(main())
