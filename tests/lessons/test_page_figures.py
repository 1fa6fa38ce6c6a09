"""Every chart of a notebook has the figures that it had when its recorded runs were last looked at."""

import page_figures
import pytest
from page_figures import NUMBER, figures_of, stored_file

from labkit.repository import NOTEBOOKS

PAGES = sorted(NOTEBOOKS.glob("*.ipynb"))


@pytest.mark.parametrize("notebook", PAGES, ids=lambda path: path.stem)
def test_a_page_shows_the_figures_that_are_stored(notebook):
    shown, stored = figures_of(notebook), stored_file(notebook).read_text(encoding="utf-8").splitlines()
    for line, kept in zip(shown, stored, strict=False):
        assert NUMBER.sub("#", line) == NUMBER.sub("#", kept), f"stored anew by {page_figures.__file__}"
        numbers, numbers_kept = ([float(number) for number in _plain(text)] for text in (line, kept))
        assert numbers == pytest.approx(numbers_kept, rel=2e-3, abs=1e-9), line
    assert len(shown) == len(stored)


def _plain(line):
    return [number.replace("−", "-").replace("\u202f", "").replace(" ", "") for number in NUMBER.findall(line)]
