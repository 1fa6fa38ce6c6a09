"""The student's copies of the notebooks: work/, which git ignores, so that `git pull` never meets an executed notebook.

A copy is refreshed cell by cell. What the student did not edit becomes what the workbook says now; what the student
edited, added, deleted or moved stays. To tell the two apart, the notebook that a copy was made from is kept beside it.
It becomes the workbook's newest once all of that is in the copy, or was told.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from labkit.course.copied_cells import same_text, with_ids
from labkit.engine.files import replace_file
from labkit.repository import NOTEBOOKS, REPOSITORY, chosen_notebooks

ORIGINALS, EARLIER = ".originals", ".earlier"  # in the folder of copies: what they were made from; what reset put aside
PAGES = ("*.ipynb", "*.md")


def folder() -> Path:
    """Return the folder of the copies: $LABKIT_WORK, or work/ in the checkout, which git ignores."""
    return Path(os.environ.get("LABKIT_WORK") or REPOSITORY / "work")


def refresh(work: Path, notebooks: Path = NOTEBOOKS) -> list[str]:
    """Bring all copies up to date with the notebooks; return a sentence for each that changed or could not.

    Raises OSError where the folder cannot be written.
    """
    (work / ORIGINALS).mkdir(parents=True, exist_ok=True)
    pages = sorted(page for pattern in PAGES for page in notebooks.glob(pattern))
    return [sentence for page in pages if (sentence := _refresh(page, work / page.name, work / ORIGINALS / page.name))]


def reset(work: Path, number: str, notebooks: Path = NOTEBOOKS) -> str:
    """Replace a copy, named as "02" or "02_broadcast", by the notebook; put the copy aside, and say where.

    Raises ValueError, listing the notebooks, where there is none of this name.
    """
    (page,), remark = chosen_notebooks([number], notebooks), ""
    copy, original = work / page.name, work / ORIGINALS / page.name
    original.parent.mkdir(parents=True, exist_ok=True)
    if copy.exists():
        aside = work / EARLIER / f"{page.stem}-{time.strftime('%Y%m%d-%H%M%S')}.ipynb"
        aside.parent.mkdir(exist_ok=True)
        os.replace(copy, aside)
        remark = f"; your copy is kept as {aside}"
    _copy_page(page, copy)
    _copy_page(page, original)
    return f"{copy} is as handed out{remark}. Your answers and predictions stay."


def _refresh(page: Path, copy: Path, original: Path) -> str:
    """Refresh one copy; return what was done, "" where there was nothing to do."""
    if not copy.exists():
        _copy_page(page, copy)
        _copy_page(page, original)
        return f"{copy.name}: new"
    if original.exists() and original.read_text(encoding="utf-8") == handed_out(page):
        return ""
    if page.suffix != ".ipynb":
        return _refresh_text(page, copy, original)
    now = nbformat.reads(handed_out(page), as_version=4)
    try:
        mine = _read(copy)
        text = json.dumps(mine)
        merged, kept, back = merge(_original(original), mine, now)
        nbformat.validate(merged)
        changed, new_text = json.dumps(merged) != text, nbformat.writes(merged)
    except Exception as error:  # whatever is in one copy, the others are refreshed
        damage = f"it is no notebook ({type(error).__name__})"
        return f"{copy.name}: {damage} and stays as it is; `make reset NB={copy.stem}` replaces it"
    if changed:
        replace_file(copy, new_text + "\n")
    _copy_page(page, original)
    told = "refreshed" if changed or kept else ""
    if kept:
        told += f", except {_cells(kept)} that you edited and that changed in the workbook, too"
    if back:
        lost = "your copy has lost the ids of its cells, and which of them are yours cannot be told"
        told += f"; {_cells(back)} that changed in the workbook {'are' if back > 1 else 'is'} added: {lost}"
    return f"{copy.name}: {told}" if told else ""


def _cells(count: int) -> str:
    return f"{count} cell{'s' if count > 1 else ''}"


def _refresh_text(page: Path, copy: Path, original: Path) -> str:
    edited = not original.exists() or copy.read_bytes() != original.read_bytes()
    if not edited or copy.read_bytes() == page.read_bytes():
        _copy_page(page, copy)
    _copy_page(page, original)
    return f"{copy.name}: you edited it, so it stays" if edited else f"{copy.name}: refreshed"


def merge(was: NotebookNode | None, mine: NotebookNode, now: NotebookNode) -> tuple[NotebookNode, int, int]:
    """Put the workbook's changes into a student's copy; return it, how many cells both edited, and how many came back.

    `was` is the notebook that the copy was made from; None where that is not known: then every cell that differs from
    the workbook's counts as edited. A refreshed cell loses its output, for that belongs to the code before. A changed
    cell that is not found comes back where the copy has lost its ids: the student may not have deleted it.
    """
    current = _by_id(now.cells)
    before = _by_id(was.cells) if was else current
    copied, lost = with_ids(mine.cells, {**before, **{name: current[name] for name in current if name not in before}})
    conflicts = back = 0
    cells: dict[str, NotebookNode] = {}
    for name, cell in current.items():
        if name not in copied:
            again = lost and name in before and not same_text(before[name], cell)
            back += again
            if again or name not in before or was is None:  # new in the workbook; else the student has deleted it
                cells[name] = cell
        elif same_text(copied[name], cell):
            copied[name].setdefault("metadata", NotebookNode()).update(cell.metadata)
            cells[name] = copied[name]
        elif name in before and same_text(copied[name], before[name]):
            cells[name] = cell
        else:
            cells[name] = copied[name]
            conflicts += name in before and not same_text(before[name], cell)
    gone = [name for name in copied if name not in current]  # from the workbook
    stays = {name for name in gone if not (name in before and same_text(copied[name], before[name]))}
    order = _cell_order([*current], [*copied], set(cells) | stays, moved=_has_moved(before, copied))
    mine["cells"] = [_complete(name, cells[name] if name in cells else copied[name]) for name in order]
    mine["nbformat_minor"] = max(mine.nbformat_minor, 5)  # from which on cells have ids
    return mine, conflicts, back


def _by_id(cells: Iterable[NotebookNode]) -> dict[str, NotebookNode]:
    """Return the workbook's cells by their ids; a cell without one, or with another's, gets one by its place."""
    by_id: dict[str, NotebookNode] = {}
    for place, cell in enumerate(cells):
        name = cell.get("id") or f"place-{place}"
        by_id[name if name not in by_id else f"{name}-{place}"] = cell
    return by_id


def _complete(name: str, cell: NotebookNode) -> NotebookNode:
    """Return a cell with all that a valid notebook asks for, and some programs leave out."""
    cell["id"] = name
    cell.setdefault("metadata", NotebookNode())
    if cell.cell_type == "code":
        cell.setdefault("outputs", [])
        cell.setdefault("execution_count", None)
    return cell


def _has_moved(before: dict, copied: dict) -> bool:
    """Whether the student has changed the order of the workbook's cells."""
    kept = [name for name in copied if name in before]
    return kept != [name for name in before if name in copied]


def _cell_order(current: list[str], copied: list[str], wanted: set[str], moved: bool) -> list[str]:
    """Return the wanted cells in the workbook's order, or the student's where that has `moved`.

    Each cell of the other one follows the cell that it follows there.
    """
    leading, following = (copied, current) if moved else (current, copied)
    order = [name for name in leading if name in wanted]
    for place, name in enumerate(following):
        if name in wanted and name not in order:
            earlier = next((name_before for name_before in reversed(following[:place]) if name_before in order), None)
            order.insert(order.index(earlier) + 1 if earlier is not None else 0, name)
    return order


def _read(file: Path) -> NotebookNode:
    """Return a notebook in format 4, of which nothing is made up: ids that it lacks stay lacking."""
    content = json.loads(file.read_text(encoding="utf-8-sig"))
    if content["nbformat"] != 4:
        return nbformat.reads(json.dumps(content), as_version=4)
    for cell in content["cells"]:
        cell.setdefault("metadata", {})
    return nbformat.v4.reads(json.dumps(content))


def _original(file: Path) -> NotebookNode | None:
    with suppress(Exception):
        return _read(file)
    return None


def handed_out(page: Path) -> str:
    """Return a page's text as a student gets it: a notebook without outputs, which would give the answers away."""
    text = page.read_text(encoding="utf-8")
    if page.suffix != ".ipynb":
        return text
    notebook = nbformat.reads(text, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return nbformat.writes(notebook) + "\n"


def _copy_page(page: Path, target: Path) -> None:
    replace_file(target, handed_out(page))
