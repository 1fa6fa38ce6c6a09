"""Lab 09, collectives: what does moving bytes between GPUs cost, and when is it latency, when bandwidth?"""

from typing import TYPE_CHECKING

from labkit.labs import front_door

if TYPE_CHECKING:
    from labkit.labs.collectives.charts.comparisons import *  # noqa: F403
    from labkit.labs.collectives.charts.sizes import *  # noqa: F403
    from labkit.labs.collectives.exercise import *  # noqa: F403
    from labkit.labs.collectives.explorer import *  # noqa: F403
    from labkit.labs.collectives.plan import *  # noqa: F403
    from labkit.labs.collectives.story.lines import *  # noqa: F403
    from labkit.labs.collectives.story.rates import *  # noqa: F403
    from labkit.labs.collectives.tables import *  # noqa: F403
    from labkit.labs.collectives.targets import *  # noqa: F403
    from labkit.labs.collectives.theory import *  # noqa: F403

RECORDED = {name: f"h200x2/collectives/{name}" for name in ("sweep", "growth", "nccltests", "ring", "trial")}

__getattr__, __dir__ = front_door(__name__)
