"""Which cell of a student's copy is which of the workbook's: by its id, or by its text where a program took the ids."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from difflib import SequenceMatcher

from nbformat import NotebookNode
from nbformat.corpus.words import generate_corpus_id

from labkit.course.syntax import answer_cell

Key = Callable[[NotebookNode], Hashable]


def own_id(cell: NotebookNode) -> str:
    """Return a cell's id, which Colab keeps in its metadata; "" where it has none that a notebook may hold."""
    for name in (cell.get("id"), cell.get("metadata", {}).get("id")):
        if isinstance(name, str) and re.fullmatch("[A-Za-z0-9_-]{1,64}", name):
            return name
    return ""


def text_of(cell: NotebookNode) -> tuple[str, str]:
    """Return kind and text of a cell, without the spaces at ends of lines that editors remove."""
    return cell.cell_type, "\n".join(line.rstrip() for line in cell.source.strip().splitlines())


def same_text(cell: NotebookNode, other: NotebookNode) -> bool:
    """Whether two cells are of one kind and text."""
    return text_of(cell) == text_of(other)


def with_ids(
    copied: Sequence[NotebookNode], workbook: Mapping[str, NotebookNode]
) -> tuple[dict[str, NotebookNode], bool]:
    """Return the copied cells by the workbook's ids, others by ids of their own, and whether the copy had lost ids.

    Where it had, a cell that is left over is the most similar one of those that follow the same cell in the workbook.
    """
    names: dict[int, str] = {}  # by place in the copy
    _pair(names, copied, workbook, own_id, by_id=True)
    kept = len(names)
    _pair(names, copied, workbook, _exercise)
    _pair(names, copied, workbook, text_of)
    lost = len(names) - kept >= kept or not all(map(own_id, copied))
    if lost:
        _pair_similar(names, copied, workbook)
    by_id: dict[str, NotebookNode] = {}
    for place, cell in enumerate(copied):
        name = names.get(place) or own_id(cell)
        while not name or name in by_id or (place not in names and name in workbook):
            name = generate_corpus_id()
        by_id[name] = cell
    return by_id, lost


def _exercise(cell: NotebookNode) -> str:
    answer = answer_cell(cell.source) if cell.cell_type == "code" else None
    return answer[0] if answer else ""


def _pair(
    names: dict[int, str],
    copied: Sequence[NotebookNode],
    workbook: Mapping[str, NotebookNode],
    key: Key,
    by_id: bool = False,
) -> None:
    """Give each copied cell that has no name yet the first free id of the workbook with the same key."""
    free: dict[Hashable, list[str]] = {}
    for name, cell in workbook.items():
        if name not in names.values():
            free.setdefault(name if by_id else key(cell), []).append(name)
    for place, cell in enumerate(copied):
        if place not in names and (own := key(cell)) and free.get(own):
            names[place] = free[own].pop(0)


def _pair_similar(names: dict[int, str], copied: Sequence[NotebookNode], workbook: Mapping[str, NotebookNode]) -> None:
    """Give copied cells the ids of the most similar cells of their kind between the same two cells of the workbook."""
    taken = {*names.values()}
    free: dict[str, list[str]] = {}
    before = ""
    for name in workbook:
        if name in taken:
            before = name
        else:
            free.setdefault(before, []).append(name)
    left: dict[str, list[int]] = {}
    before = ""
    for place in range(len(copied)):
        if place in names:
            before = names[place]
        else:
            left.setdefault(before, []).append(place)
    for before, places in left.items():
        pairs = [
            (SequenceMatcher(None, copied[place].source, workbook[name].source).quick_ratio(), -place, name)
            for place in places
            for name in free.get(before, ())
            if copied[place].cell_type == workbook[name].cell_type
        ]
        for _, place, name in sorted(pairs, reverse=True):
            if -place not in names and name not in names.values():
                names[-place] = name
