"""Fixtures: a place of their own for the runs of each test, and the launch after the last fault of a file."""

import pytest
from failing_launches import FAILED, apart_in, works


@pytest.fixture(autouse=True)
def apart(tmp_path, monkeypatch):
    """Runs go to the test's own folder, and workers find the labs of this folder."""
    for name, value in apart_in(tmp_path).items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="module", autouse=True)
def next_launch(tmp_path_factory):
    """The launch after a fault works: the next test's shows it, and after a file's last test one that does well."""
    yield
    if FAILED:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in apart_in(tmp_path_factory.mktemp("next")).items():
                patch.setenv(name, value)
            works()
