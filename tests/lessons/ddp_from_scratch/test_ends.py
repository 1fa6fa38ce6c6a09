"""Real launches: nothing is on its way between the ranks when a profile ends, or when a strategy is closed."""

import pytest
from late_worker import LATE_S, Late

from labkit.launching import launch

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LABKIT_RUNS", str(tmp_path_factory.mktemp("runs")))
        yield launch(Late.small(gpus=2, device="cpu"), progress=False).rows


@pytest.mark.parametrize("end", ["profile", "close"])
@pytest.mark.parametrize("strategy", ["overlapped", "bucketed"])
def test_no_rank_leaves_before_every_rank_has_sent(rows, strategy, end):
    """A profiler of torch that stops during a collective of gloo's is later written to, when its memory is freed."""
    found = rows[(rows["strategy"] == strategy) & (rows["end"] == end)]
    assert len(found) == 2
    assert found["began_s"].max() - found["began_s"].min() > LATE_S / 2, "the last rank is late"
    assert found["left_s"].min() >= found["began_s"].max()
