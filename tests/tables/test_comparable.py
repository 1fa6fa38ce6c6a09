"""Two figures of one target are comparable as far as what it depends on is alike in both runs."""

import pytest

from labkit.tables.goals import comparable
from labkit.tables.measures import CODE, GPU, HOST

H200 = {"processor": "NVIDIA H200", "driver": "580.1", "torch": "2.11.0", "enqueue_us": 7.3, "throttled_percent": 0.0}
SLOW_HOST = H200 | {"enqueue_us": 14.2}


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        (H200, {GPU: "comparable", HOST: "comparable", CODE: "comparable"}),
        (SLOW_HOST, {GPU: "comparable", HOST: "enqueue", CODE: "comparable"}),
        (H200 | {"throttled_percent": 60.0}, {GPU: "throttled", HOST: "throttled", CODE: "comparable"}),
        (H200 | {"torch": "2.13.0"}, {GPU: "torch is 2.13.0 in this run and 2.11.0 in the recorded run"}),
        (SLOW_HOST | {"processor": "NVIDIA A100"}, {GPU: "NVIDIA A100 in this run and NVIDIA H200"}),
        ({}, {GPU: "not known", CODE: "comparable"}),
        ({"processor": "NVIDIA H200", "driver": "580.1"}, {GPU: "not known"}),
    ],
)
def test_a_figure_is_comparable_as_far_as_it_depends_on_what_differs(conditions, words):
    for depends_on, word in words.items():
        assert word in comparable((depends_on, H200), (depends_on, conditions))
