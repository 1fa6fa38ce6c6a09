"""A GPU that waits for its host is named with its idle share; one that is kept busy is not."""

import pandas as pd
import pytest

from labkit import replay
from labkit.provenance import of_source
from labkit.story.profile import host_bound
from lessons import sharding


def test_the_recorded_step_whose_host_starts_kernels_late():
    run = replay("h200x2/sharding/profiles")
    assert host_bound(sharding.profile(run)) == ["FSDP gradient-only 25 %", "FSDP full 45 %"]
    assert "The host is late" in sharding.hidden_share(sharding.overlap(run)).data
    footer = sharding.breakdown_chart(sharding.profile(run)).get_supxlabel()
    assert "recorded, host-bound, idle share of the idlest GPU: FSDP, gradient-only 25 %, FSDP, full 45 %" in footer
    assert "DDP" not in footer, "its gaps are those of any profiled step"


@pytest.mark.parametrize(("share", "small", "named"), [(0.45, False, 1), (0.11, False, 0), (0.45, True, 0)])
def test_only_long_gaps_of_a_gpu_are_named(share, small, named):
    table = of_source(pd.DataFrame(), "a run", small=small, idle_shares={"ddp": share})
    assert len(host_bound(table)) == named


def test_of_a_table_without_profiles_there_is_nothing_to_say():
    assert host_bound(of_source(pd.DataFrame(), "a run")) == []
