"""In a report, links between notebooks and to the glossary lead to the report's own pages."""

import re

import nbformat

from labkit.batch import sources
from labkit.batch.__main__ import main
from labkit.batch.site import Site
from labkit.repository import NOTEBOOKS

LINKS = """text: # First

[second](01_second.ipynb), [never run](02_third.ipynb#idea), [ring](glossary.md#ring), [paper](https://arxiv.org/abs/1910.02054)"""
GLOSSARY = (
    '# Glossary\n\n<a id="ring"></a>\n\n### Ring\n\nA circle.\n\nSource: [paper](https://arxiv.org/abs/1910.02054)\n'
)


def links(page):
    return {link for link in re.findall(r'<a [^>]*href="([^"]+)', page) if not link.startswith(("https://", "#"))}


def test_a_report_holds_every_page_that_its_pages_link_to(tmp_path, write_notebook, monkeypatch):
    monkeypatch.setattr(sources, "labs_with_claims", list)
    folder, report = tmp_path / "notebooks", tmp_path / "report"
    write_notebook(folder / "00_first.ipynb", "# First", LINKS)
    write_notebook(folder / "01_second.ipynb", "# Second", "1")
    write_notebook(folder / "02_third.ipynb", "# Third", "1")
    (folder / "glossary.md").write_text(GLOSSARY)
    assert main(["--notebooks-folder", str(folder), "--report", str(report), "00", "01"]) == 0
    assert "glossary.html" in links((report / "index.html").read_text())
    first = (report / "00_first.html").read_text()
    assert {"01_second.html", "index.html", "glossary.html#ring"} <= links(first) and "ipynb" not in str(links(first))
    assert 'rel="next"' in re.sub(r"\s+", " ", first) or "01_second.html" in first.partition("prev-next")[2]
    for page in report.glob("*.html"):
        for target in links(page.read_text()):
            assert (report / target.partition("#")[0]).is_file(), f"{page.name} links to {target}"


def test_every_link_of_the_notebooks_leads_to_a_place_on_a_page(tmp_path):
    pages = {path.name: path.read_text(encoding="utf-8") for path in NOTEBOOKS.glob("*.ipynb")}
    names = [name.removesuffix(".ipynb") for name in sorted(pages)]
    made = {name: sources.notebook_page(nbformat.reads(text, as_version=4), "", names) for name, text in pages.items()}
    made["glossary.md"] = (NOTEBOOKS / "glossary.md").read_text(encoding="utf-8")
    made["index.md"] = sources.first_page("T", [], [], {}, "", sorted(made))
    assert Site(tmp_path).write(made) == {}
    html = {path.name: path.read_text() for path in tmp_path.glob("*.html")}
    places = {name: set(re.findall(r'\bid="([^"]+)"', text)) for name, text in html.items()}
    for name, text in html.items():
        article = text.partition("<article")[2].partition("</article")[0]
        for link in links(article):
            page, _, place = link.partition("#")
            assert page in html or page.startswith("_images/"), f"{name} links to {link}"
            assert not place or place in places[page], f"{name} links to {link}"
