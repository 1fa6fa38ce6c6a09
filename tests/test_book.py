"""The book is read without a node, a server or a network: every lesson, its pictures in words, and a search.

`python tests/test_book.py` stores README's picture of its first page.
"""

import hashlib
import io
import re
import subprocess
import tempfile
from pathlib import Path

import pytest
from jupyter_lab import BROWSER, CHROMIUM, NEEDS_CHROMIUM
from loaded import from_elsewhere
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from playwright.sync_api import sync_playwright

from labkit.batch import book
from labkit.batch.site import Site
from labkit.repository import RECORDED, chosen_notebooks

PICTURE = RECORDED / "charts" / "book.png"  # README's: the first page as a reader sees it
SEEN = 4  # lessons on it
SHORT = {"index.md": "# Book\n", "pictures/00_start.png": b"a picture"}
MOST_MB, MOST_PDF_MB = 40, 30
NAMES = [path.stem for path in chosen_notebooks()]


@pytest.fixture(scope="module")
def pages():
    return book.pages()


@pytest.fixture(scope="module")
def folder(pages, tmp_path_factory):
    folder = tmp_path_factory.mktemp("book")
    assert Site(folder).write(pages) == {}
    return folder


def test_the_book_holds_every_lesson_and_fetches_nothing(folder):
    for page in folder.glob("*.html"):
        assert from_elsewhere(page.read_text()) == [], page.name
    assert {f"{name}.html" for name in NAMES} <= {page.name for page in folder.glob("*.html")}
    assert sum(file.stat().st_size for file in folder.rglob("*")) < MOST_MB * 1e6


def test_the_first_page_has_a_question_a_picture_and_a_verdict_of_each_lesson(folder):
    lessons = (folder / "index.html").read_text().split('<article class="lesson">')[1:]
    assert len(lessons) == len(NAMES)
    for name, lesson in zip(NAMES, lessons, strict=True):
        assert f'href="{name}.html"' in lesson and (folder / "pictures" / f"{name}.png").is_file()
        assert re.search(r'<img [^>]*alt="Chart\. ', lesson), name
        assert re.search(r'class="question">.*\?.*</div>', lesson), name
        assert re.search(r'class="verdict">.*<strong>.*\d.*</div>', lesson), name


def test_every_chart_says_what_it_draws_and_what_it_shows(folder):
    pictures = [re.findall(r"<img [^>]*_images/[^>]*>", (folder / f"{name}.html").read_text()) for name in NAMES]
    words = [re.search(r'alt="(.*?)"', picture)[1] for page in pictures for picture in page]
    assert len(words) > 80 and all(text.startswith("Chart. ") and "Source: " in text for text in words)
    assert sum("." in text.rpartition("Source: ")[2].rstrip(".") for text in words) > 40, "the verdict follows"


@pytest.mark.slow
@NEEDS_CHROMIUM
@pytest.mark.parametrize("width", [1366, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_reader_finds_the_way_on_any_screen(folder, width, scheme):
    fetched = []
    with sync_playwright() as player, player.chromium.launch(executable_path=CHROMIUM, args=BROWSER) as browser:
        page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        page.on("request", lambda request: fetched.append(request.url))
        page.goto((folder / "index.html").as_uri())
        page.locator("article.lesson h2 a").nth(2).click()
        assert page.title().startswith("02 · Broadcast")
        contents = page.locator("#pst-secondary-sidebar a, .bd-sidebar-secondary a").first
        contents.wait_for(state="visible" if width > 1200 else "hidden")
        assert page.evaluate("document.documentElement.scrollWidth") == width, "nothing to scroll sideways"
        page.locator("a.right-next").first.click()
        assert page.title().startswith("03 · Pipeline")
        page.goto(f"{(folder / 'search.html').as_uri()}?q=bubble")
        page.locator("#search-results li a").first.wait_for(timeout=20_000)
    assert fetched and all(address.startswith(("file:", "data:")) for address in fetched), fetched


@pytest.mark.slow
@NEEDS_CHROMIUM
def test_the_book_is_printed_as_one_file(pages, tmp_path):
    file = book.print_pdf(pages, tmp_path / "book.pdf")
    printed = file.read_bytes()
    assert printed.startswith(b"%PDF") and len(printed) < MOST_PDF_MB * 1e6
    assert printed.count(b"/Type /Page\n") > 100 and b"/Outlines" in printed


def test_without_a_browser_the_pdf_is_refused_in_a_sentence(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(book, "pages", lambda: SHORT)
    monkeypatch.setattr(book, "CHROMIUM", ())
    with pytest.raises(SystemExit) as stop:
        book.main(["--out", str(tmp_path), "--pdf"])
    assert stop.value.code == 1 and "Chromium" in capsys.readouterr().err and (tmp_path / "index.html").exists()
    assert not (tmp_path / "book.pdf").exists()


def test_notebooks_without_outputs_make_no_book(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(book, "pages", lambda: {"index.md": "# Book\n", "pictures/00_start.png": b""})
    with pytest.raises(SystemExit) as stop:
        book.main(["--out", str(tmp_path / "book")])
    assert stop.value.code == 1 and "without outputs" in capsys.readouterr().err and not (tmp_path / "book").exists()


def test_a_browser_that_fails_is_named(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(book, "pages", lambda: SHORT)

    def fails(command, **_):
        raise subprocess.CalledProcessError(21, command)

    monkeypatch.setattr(book.subprocess, "run", fails)
    monkeypatch.setattr(book.shutil, "which", lambda name: name)
    with pytest.raises(SystemExit):
        book.main(["--out", str(tmp_path), "--pdf"])
    assert "exit status 21" in capsys.readouterr().err


def seen(folder):
    """Return what README's picture shows, as a digest: the text and the pictures of the first lessons."""
    lessons = (folder / "index.html").read_text().split('<article class="lesson">')[: SEEN + 1]
    pictures = [(folder / "pictures" / f"{name}.png").read_bytes() for name in NAMES[:SEEN]]
    return hashlib.sha256("".join(lessons[1:]).encode() + b"".join(pictures)).hexdigest()[:16]


def test_readme_shows_the_books_first_page(folder):
    with Image.open(PICTURE) as picture:
        assert picture.info["seen"] == seen(folder), "python tests/test_book.py stores it"
    assert PICTURE.stat().st_size < 150_000


def store(folder):
    Site(folder).write(book.pages())
    with sync_playwright() as player, player.chromium.launch(executable_path=CHROMIUM, args=BROWSER) as browser:
        page = browser.new_page(viewport={"width": 1200, "height": 900}, device_scale_factor=1.5, color_scheme="light")
        page.goto((folder / "index.html").as_uri())
        page.wait_for_timeout(1000)
        picture = Image.open(io.BytesIO(page.screenshot()))
    notes = PngInfo()
    notes.add_text("seen", seen(folder))
    picture.convert("RGB").quantize(64).save(PICTURE, pnginfo=notes, optimize=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        store(Path(made))
