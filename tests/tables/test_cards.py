"""A card's figures and names: no figure is rounded onto its goal, and a name says how many GPUs a target is of."""

from types import SimpleNamespace

import pytest

from labkit.tables.targets import OPEN, Target, card, card_of


@pytest.mark.parametrize(
    ("measured", "shown"), [(0.9498, 0.9498), (0.94996, 0.94996), (0.95, 0.95), (0.12345, 0.123), (0.95123, 0.951)]
)
def test_a_figure_is_not_rounded_onto_its_goal(measured, shown):
    rows = card("lab", [Target("share", measured, "≥", 0.95, spread=0.02)])
    assert rows["measured"].tolist() == [shown]


def test_a_goal_inside_the_spread_is_open_whatever_the_figure_shows():
    targets = [Target("share", 0.9498, "≥", 0.95, spread=0.024), Target("share alone", 0.9498, "≥", 0.95)]
    assert card("lab", targets)["met"].tolist() == [OPEN, False]


def test_targets_of_several_machines_name_their_number_of_gpus():
    class Made(SimpleNamespace):
        source, plan = "made", SimpleNamespace(device="cuda", gpus=4, name="sweep")

        def key_conditions(self):
            return {}

    def targets(run):
        return [Target("speed", 2.0, "≥", 1.0), Target("speed on 4 GPUs", 2.0, "≥", 1.0)]

    named = card_of(Made(), "lab", {"sweep": targets}, counted=("sweep",))
    assert named["target"].tolist() == ["speed, 4 GPUs", "speed on 4 GPUs"]
    assert card_of(Made(), "lab", {"sweep": targets})["target"].tolist() == ["speed", "speed on 4 GPUs"]
