"""Lab 01, topology: how the GPUs are wired to each other and to the host, as printed, as nominal, as measured."""

from typing import TYPE_CHECKING

from lessons import front_door

if TYPE_CHECKING:
    from lessons.topology.charts.copies import *  # noqa: F403
    from lessons.topology.charts.node_map import *  # noqa: F403
    from lessons.topology.exercise import *  # noqa: F403
    from lessons.topology.plan import *  # noqa: F403
    from lessons.topology.story import *  # noqa: F403
    from lessons.topology.tables import *  # noqa: F403

RECORDED = "h200x4/topology/copies"

__getattr__, __dir__ = front_door(__name__)
