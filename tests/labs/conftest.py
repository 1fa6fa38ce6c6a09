"""What tests of several labs need: answers and runs of their own."""

import pytest


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """Answers and runs of a test are its own."""
    monkeypatch.setenv("LABKIT_ANSWERS", str(tmp_path / "answers"))
    monkeypatch.setenv("LABKIT_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("LABKIT_PROGRESS", "0")
