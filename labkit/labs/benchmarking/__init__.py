"""Lab 06, benchmarking: where does a step's time go?"""

from typing import TYPE_CHECKING

from labkit.labs import front_door

if TYPE_CHECKING:
    from labkit.labs.benchmarking.charts.profiles import *  # noqa: F403
    from labkit.labs.benchmarking.charts.steps import *  # noqa: F403
    from labkit.labs.benchmarking.exercise import *  # noqa: F403
    from labkit.labs.benchmarking.explorer import *  # noqa: F403
    from labkit.labs.benchmarking.plan import *  # noqa: F403
    from labkit.labs.benchmarking.story.firsts import *  # noqa: F403
    from labkit.labs.benchmarking.story.profiles import *  # noqa: F403
    from labkit.labs.benchmarking.story.steps import *  # noqa: F403
    from labkit.labs.benchmarking.tables.launches import *  # noqa: F403
    from labkit.labs.benchmarking.tables.profiles import *  # noqa: F403
    from labkit.labs.benchmarking.tables.steps import *  # noqa: F403
    from labkit.labs.benchmarking.tables.trials import *  # noqa: F403
    from labkit.labs.benchmarking.targets import *  # noqa: F403
    from labkit.labs.benchmarking.theory import *  # noqa: F403

RECORDED = {name: f"h200/benchmarking/{name}" for name in ("steps", "firstcalls", "launches", "profiles", "trial")}

__getattr__, __dir__ = front_door(__name__)
