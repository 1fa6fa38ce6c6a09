"""Every term of the glossary has a text, a source and an anchor of its own, and the same paper has one address."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

import pytest
from course_texts import ANCHORS, ENTRIES, FOLDER, GLOSSARY, NOTEBOOKS, broken

from labkit.course.lessons import LINK
from labkit.repository import REPOSITORY
from labkit.tables.published import report_names

# What the issue of the course names, and what every lab's first page uses.
EXPECTED = {"nccl", "ring", "bus-bandwidth", "bubble", "zero-stage", "mfu", "roofline", "all-reduce", "rank", "gib"}


def test_anchors_are_there_once():
    assert [anchor for anchor, count in Counter(ANCHORS).items() if count > 1] == []
    assert {*ANCHORS} >= EXPECTED
    assert len(ENTRIES) == GLOSSARY.count("\n### "), "an entry lacks its anchor"


@pytest.mark.parametrize("anchor, name, text", ENTRIES, ids=[entry[0] for entry in ENTRIES])
def test_a_term_is_explained_briefly_and_has_a_source(anchor, name, text):
    explained, _, source = text.partition("\nSource: ")
    assert 8 <= len(explained.split()) <= 80, "three lines"
    own = re.fullmatch(r"this workbook, `([^`]+)`\s*", source)
    assert LINK.search(source) or (own and (REPOSITORY / own[1]).is_file()), f"{name} has no source"


def test_every_link_of_the_glossary_leads_somewhere():
    assert [*broken(GLOSSARY, FOLDER)] == []


def test_every_report_has_an_entry():
    headings = [name for _, name, _ in ENTRIES]
    for name in report_names().values():
        assert name[0].upper() + name[1:] in headings


LINKS = [
    link
    for text in [GLOSSARY, *(cell.source for notebook in NOTEBOOKS.values() for cell in notebook.cells)]
    for link in LINK.findall(text)
]


def test_no_address_is_cut_at_a_bracket():
    """Markdown ends an address at a bracket, some readers of it at the first: such an address has it as %28 or %29."""
    assert [target for _, target in LINKS if "(" in target] == []


def test_a_paper_has_the_same_authors_wherever_it_is_cited():
    authors = defaultdict(set)
    for name, target in LINKS:
        if re.search(r"arxiv\.org/abs|doi\.org", target) and "," in name and "*" in name:
            authors[target].add(re.split(r"[ ,]", name)[0])
    assert {target: names for target, names in authors.items() if len(names) > 1} == {}
    assert len(authors) > 30
