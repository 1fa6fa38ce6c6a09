"""`make handout`: what a class gets: the notebooks in handout/ and handout.zip, the workbook without solutions.py."""

import argparse
import sys
from pathlib import Path

from labkit.course.grading.handout import hand_out, write_package
from labkit.repository import REPOSITORY


def main(arguments: list[str] | None = None) -> int:
    """Write what the arguments ask for; return 0, or 2 with a sentence where that is not possible."""
    parser = argparse.ArgumentParser(prog="python -m labkit.tools.handout", description=__doc__)
    parser.add_argument("notebooks", nargs="*", help="as 02, or 02_broadcast (default: all)")
    parser.add_argument(
        "--folder", type=Path, default=REPOSITORY / "handout", help="the new folder; its zips lie beside it"
    )
    options = parser.parse_args(arguments)
    try:
        pages = hand_out(options.folder, options.notebooks)
        package = write_package(options.folder)
    except (ValueError, OSError) as error:
        print(f"make handout: {error}", file=sys.stderr)
        return 2
    print(f"{options.folder} and {options.folder.name}.zip: {len(pages)} notebooks, without answers and outputs")
    print(f"{package.name}: the workbook for students, without solutions.py; it holds the code that draws the cases")
    return 0


if __name__ == "__main__":
    sys.exit(main())
