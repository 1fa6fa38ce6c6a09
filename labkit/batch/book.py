"""The book: the pages of the notebooks as they are stored, with recorded runs; `make book`, read without a node.

Nothing is run: nbval holds every stored output to what the recorded runs give. With --pdf a Chromium of this machine
prints the book as one file.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat

from labkit.batch import sources
from labkit.batch.execute import title
from labkit.batch.site import Site
from labkit.card.card_html import STYLE, card_html
from labkit.card.cards import Card
from labkit.report.page import TITLE
from labkit.repository import NOTEBOOKS, RECORDED, REPOSITORY, chosen_notebooks

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
PRINT = [
    "--headless",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--no-pdf-header-footer",
    "--generate-pdf-document-outline",
    "--run-all-compositor-stages-before-draw",
    "--virtual-time-budget=60000",
]
ABOUT = (
    "17 lessons on training with several GPUs, as they come out on recorded runs: nothing needs to be installed.",
    "To run them on your own machine, and to write the answers: <code>make lab</code>. Each page's first line names "
    "the nodes and days of its runs.",
)


def pages() -> dict[str, str | bytes]:
    """Return the sources of the book by file name, in the order of the course."""
    made: dict[str, str | bytes] = {}
    entries, paths = [], chosen_notebooks()
    names = [path.stem for path in paths]
    for path in paths:
        notebook = nbformat.read(path, as_version=4)
        shown, heading = sources.shown_first(notebook), title(notebook)
        entries.append(sources.lesson_entry(path.stem, heading, shown))
        made[sources.picture_file(path.stem)] = sources.thumbnail(shown.picture)
        made[f"{path.stem}.ipynb"] = sources.notebook_page(notebook, "", names)
    for card in sorted(RECORDED.glob("*/card.json")):
        made["card.md"] = sources.raw_page("A recorded node's card", card_html(Card.load(card)), STYLE)
    made["claims.md"] = sources.claims_page()
    made["glossary.md"] = (NOTEBOOKS / "glossary.md").read_text(encoding="utf-8")
    made["index.md"] = sources.first_page(TITLE, ABOUT, entries, sources.BESIDE, "", list(made))
    return made


def main(arguments: list[str] | None = None) -> int:
    """Write the book; return 1 where a page of it, or the PDF, cannot be made."""
    parser = argparse.ArgumentParser(prog="make book", description=__doc__)
    parser.add_argument("--out", type=Path, default=REPOSITORY / "book", help="where it goes (default: book/)")
    parser.add_argument("--pdf", action="store_true", help="also print it as book.pdf")
    chosen = parser.parse_args(arguments)
    made = pages()
    if not any(made.get(sources.picture_file(path.stem)) for path in chosen_notebooks()):
        parser.exit(1, "These notebooks are stored without outputs, as a class gets them: there is nothing to read.\n")
    unmade = Site(chosen.out).write(made)
    for name, why in unmade.items():
        print(f"{name}: {why}", file=sys.stderr)
    print(f"book: {chosen.out / 'index.html'}")
    if chosen.pdf:
        try:
            print(f"book: {print_pdf(made, chosen.out / 'book.pdf')}")
        except (OSError, subprocess.SubprocessError) as error:
            parser.exit(1, f"no PDF was printed: {error}\n")
    return int(bool(unmade))


def print_pdf(made: dict[str, str | bytes], file: Path) -> Path:
    """Print all pages as one PDF with contents and page numbers; OSError where there is no Chromium."""
    browser = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if browser is None:
        raise FileNotFoundError(f"it needs a Chromium on the path: one of {', '.join(CHROMIUM)}")
    with tempfile.TemporaryDirectory() as folder:
        Site(Path(folder)).write(made, builder="singlehtml")
        page = Path(folder, "index.html").as_uri()
        as_root = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium has none for root; the pages are our own
        command = [browser, *PRINT, *as_root, f"--print-to-pdf={file}", page]
        subprocess.run(command, check=True, timeout=600, capture_output=True)
    return file


if __name__ == "__main__":
    sys.exit(main())
