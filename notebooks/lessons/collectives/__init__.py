"""Lab 09, collectives: what does moving bytes between GPUs cost, and when is it latency, when bandwidth?"""

from typing import TYPE_CHECKING

from labkit.engine.recordings import Recordings
from lessons import front_door

if TYPE_CHECKING:
    from lessons.collectives.charts.comparisons import *  # noqa: F403
    from lessons.collectives.charts.reference import *  # noqa: F403
    from lessons.collectives.charts.sizes import *  # noqa: F403
    from lessons.collectives.exercise import *  # noqa: F403
    from lessons.collectives.explorer import *  # noqa: F403
    from lessons.collectives.plan import *  # noqa: F403
    from lessons.collectives.story.lines import *  # noqa: F403
    from lessons.collectives.story.rates import *  # noqa: F403
    from lessons.collectives.story.reference import *  # noqa: F403
    from lessons.collectives.tables import *  # noqa: F403
    from lessons.collectives.targets import *  # noqa: F403
    from lessons.collectives.theory import *  # noqa: F403

_MACHINES = ("h200x2", "h200x4")
# Four GPUs are nearest to the reports, which print 2, 4 and 6 processes, and up to 4 GPUs.
RECORDED = Recordings(
    "collectives",
    4,
    {**dict.fromkeys(("sweep", "nccltests", "ring"), _MACHINES), "growth": ("h200x2",), "trial": ("h200x2",)},
)

__getattr__, __dir__ = front_door(__name__)
