"""In a report, links between notebooks and to the glossary lead to the report's own pages."""

import re

import nbformat
import pytest
from nbconvert.filters import markdown2html

from labkit.batch.__main__ import main
from labkit.batch.pages import loaded_addresses, with_report_links, write_glossary
from labkit.repository import REPOSITORY

LINKS = """text: # First

[second](01_second.ipynb), [never run](02_third.ipynb#idea), [ring](glossary.md#ring), [paper](https://arxiv.org/abs/1910.02054)"""
GLOSSARY = (
    '# Glossary\n\n<a id="ring"></a>\n\n### Ring\n\nA circle.\n\nSource: [paper](https://arxiv.org/abs/1910.02054)\n'
)


@pytest.mark.parametrize(
    "link, there",
    [
        ("01_second.ipynb", "01_second.html"),
        ("01_second.ipynb#idea", "01_second.html#idea"),
        ("09_elsewhere.ipynb", "index.html"),
        ("glossary.md", "glossary.html"),
        ("glossary.md#ring", "glossary.html#ring"),
        ("https://example.org/01_second.ipynb", "https://example.org/01_second.ipynb"),
        ("claims.html", "claims.html"),
    ],
)
def test_a_link_leads_to_the_page(link, there):
    assert with_report_links(f'<a href="{link}">x</a>', {"01_second"}) == f'<a href="{there}">x</a>'


def test_a_report_holds_every_page_that_its_pages_link_to(tmp_path, write_notebook, monkeypatch):
    monkeypatch.setattr("labkit.batch.run.write_claims", lambda path: None)
    folder, report = tmp_path / "notebooks", tmp_path / "report"
    write_notebook(folder / "00_first.ipynb", "# First", LINKS)
    write_notebook(folder / "01_second.ipynb", "# Second", "1")
    write_notebook(folder / "02_third.ipynb", "# Third", "1")
    (folder / "glossary.md").write_text(GLOSSARY)
    assert main(["--notebooks-folder", str(folder), "--report", str(report), "00", "01"]) == 0
    assert 'href="glossary.html"' in (report / "index.html").read_text()
    for page in report.glob("*.html"):
        for target in re.findall(r'href="([^"#]+)', page.read_text()):
            assert target.startswith("https://") or (report / target).is_file(), f"{page.name} links to {target}"


def test_the_glossary_s_page_has_its_anchors_and_loads_nothing(tmp_path):
    write_glossary(REPOSITORY / "notebooks", tmp_path)
    html = (tmp_path / "glossary.html").read_text()
    source = (REPOSITORY / "notebooks" / "glossary.md").read_text()
    for anchor in re.findall(r'<a id="([^"]+)"', source):
        assert f'id="{anchor}"' in html
    assert loaded_addresses(html) == []
    assert re.findall(r'href="(?!https://|#|index\.html)', html) == []


def test_every_link_of_the_notebooks_leads_to_a_page_of_the_report():
    notebooks = {page.stem: page for page in (REPOSITORY / "notebooks").glob("*.ipynb")}
    pages = {f"{name}.html" for name in notebooks} | {"glossary.html"}
    for name, page in notebooks.items():
        text = "\n\n".join(cell.source for cell in nbformat.read(page, 4).cells if cell.cell_type == "markdown")
        links = re.findall(r'href="([^"#]+)', with_report_links(markdown2html(text), notebooks))
        assert links and {link for link in links if not link.startswith("https://")} <= pages, name
