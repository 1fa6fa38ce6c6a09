"""Lab 14, beyond the node: what a slow link between nodes costs, and which ways of training it allows."""

from typing import TYPE_CHECKING

from labkit.labs import front_door

if TYPE_CHECKING:
    from labkit.labs.beyond_the_node.plan import *  # noqa: F403

RECORDED = {name: f"two_namespaces/beyond_the_node/{name}" for name in ("messages", "strategies", "localsteps")}

__getattr__, __dir__ = front_door(__name__)
