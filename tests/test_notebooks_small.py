"""Every notebook runs, small, on this machine: nbval runs it on recorded runs alone."""

import pytest

from labkit.batch.execute import execute
from labkit.report.record import OK
from labkit.repository import chosen_notebooks


@pytest.mark.slow
@pytest.mark.parametrize("path", chosen_notebooks(), ids=lambda path: path.stem)
def test_a_notebook_runs_small(path, tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_RUNS", str(tmp_path / "runs"))
    outcome = execute(path, tmp_path / path.name, {"size": "small"}, {"disable": True})
    assert outcome.status == OK, outcome.why
