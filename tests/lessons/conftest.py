"""What tests of several labs need: answers and runs of their own, published tables to edit, GPUs that are shown."""

import dataclasses
import shutil

import pandas as pd
import pytest

from labkit import node
from labkit.claims import claims
from labkit.engine.plan import CONTEXT_BYTES, MEMORY_MARGIN
from labkit.tables import published


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Answers and runs of a test are its own."""
    monkeypatch.setenv("LABKIT_ANSWERS", str(tmp_path / "answers"))
    monkeypatch.setenv("LABKIT_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("LABKIT_PROGRESS", "0")


@pytest.fixture
def edited_claims(tmp_path, monkeypatch):
    """Return a function that edits a copy of a published table and returns the lab's claims that follow from it.

    The change is a pair, a printed text and another for it, or a function that returns another table. Edits add up.
    """
    folder = shutil.copytree(published.PUBLISHED, tmp_path / "published")
    monkeypatch.setattr(published, "PUBLISHED", folder)

    def edit(lab, name, change):
        file = folder / f"{name}.csv"
        if callable(change):
            change(pd.read_csv(file)).to_csv(file, index=False)
        else:
            printed, other = change
            assert printed in file.read_text()
            file.write_text(file.read_text().replace(printed, other))
        return claims(lab).set_index("claim")

    return edit


@pytest.fixture
def free(monkeypatch):
    """Return a function that makes the node show so many GPUs with so many GB free."""

    def shows(gpus: int, gb: float) -> float:
        here = dataclasses.replace(node.here(), gpus=tuple(node.Gpu(index, "a GPU") for index in range(gpus)))
        monkeypatch.setattr(node, "here", lambda: here)
        monkeypatch.setattr(node, "free_bytes", lambda gpus: gb * 1e9)
        return (1 - MEMORY_MARGIN) * (gb * 1e9 - CONTEXT_BYTES)

    return shows
