"""Keeps the launches of these tests in their own folders."""

import os

import pytest
from launches import HERE

from labkit.repository import REPOSITORY


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Runs go to the test's own folder, and workers find the lab of this folder."""
    monkeypatch.setenv("LABKIT_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("PYTHONPATH", f"{HERE}{os.pathsep}{REPOSITORY}")
    monkeypatch.setenv("LABKIT_PROGRESS", "0")
