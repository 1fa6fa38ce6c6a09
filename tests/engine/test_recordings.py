"""Of several recordings of one plan, a lesson reads the one whose GPU count is nearest to its report's."""

import json

import pytest

import labkit.engine.recordings as recordings_module
from labkit.engine.recordings import Recordings


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """Return a function that records one plan on machines with so many GPUs."""
    monkeypatch.setattr(recordings_module, "RECORDED", tmp_path)

    def record(*counts: int) -> list[str]:
        for count in counts:
            folder = tmp_path / f"h200x{count}" / "start" / "hello"
            folder.mkdir(parents=True)
            plan = {"plan": "lessons.start.plan:Hello", "gpus": count, "seeds": [0], "size": "full"}
            (folder / "plan.json").write_text(json.dumps(plan | {"device": "cuda", "sums": 20}))
        return [f"h200x{count}" for count in counts]

    return record


@pytest.mark.parametrize(
    ("of_report", "counts", "chosen"), [(4, (2, 4), 4), (2, (4, 2), 2), (8, (2, 4), 4), (1, (4, 2), 2), (3, (2, 4), 4)]
)
def test_the_recording_nearest_to_the_report_is_read(recorded, of_report, counts, chosen):
    machines = recorded(*counts)
    assert Recordings("start", of_report, {"hello": machines})["hello"] == f"h200x{chosen}/start/hello"


def test_a_recording_may_have_a_number_of_its_own(recorded):
    named = Recordings("start", 4, {"hello": recorded(2, 4)}, own_gpus={"hello": 2})
    assert dict(named) == {"hello": "h200x2/start/hello"}
    assert named.nearest("hello", 4) == "h200x4/start/hello"
    assert named.all() == ["h200x2/start/hello", "h200x4/start/hello"]


def test_a_recording_that_is_missing_is_named(recorded):
    named = Recordings("start", 4, {"hello": [*recorded(2), "h200x4"]})
    with pytest.raises(FileNotFoundError, match="h200x4/start/hello"):
        named["hello"]
    with pytest.raises(KeyError):
        named["goodbye"]
    assert Recordings("start", 4, {"hello": ["h200x2"]})["hello"] == "h200x2/start/hello"
