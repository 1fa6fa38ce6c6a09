"""Lab 14, beyond the node: what a slow link between nodes costs, and which ways of training it allows."""

from typing import TYPE_CHECKING

from lessons import front_door

if TYPE_CHECKING:
    from lessons.beyond_the_node.charts.links import *  # noqa: F403
    from lessons.beyond_the_node.charts.projection import *  # noqa: F403
    from lessons.beyond_the_node.charts.steps import *  # noqa: F403
    from lessons.beyond_the_node.exercise import *  # noqa: F403
    from lessons.beyond_the_node.explorer import *  # noqa: F403
    from lessons.beyond_the_node.plan import *  # noqa: F403
    from lessons.beyond_the_node.story.links import *  # noqa: F403
    from lessons.beyond_the_node.story.projection import *  # noqa: F403
    from lessons.beyond_the_node.story.steps import *  # noqa: F403
    from lessons.beyond_the_node.tables.measured import *  # noqa: F403
    from lessons.beyond_the_node.tables.projection import *  # noqa: F403
    from lessons.beyond_the_node.targets import *  # noqa: F403
    from lessons.beyond_the_node.theory.levels import *  # noqa: F403
    from lessons.beyond_the_node.theory.steps import *  # noqa: F403

RECORDED = {name: f"two_namespaces/beyond_the_node/{name}" for name in ("messages", "strategies", "localsteps")}

__getattr__, __dir__ = front_door(__name__)
