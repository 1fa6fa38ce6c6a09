"""Lab 12, accounting: does it fit, and is it compute-bound? Pen, paper and exact units, before anything runs."""

from typing import TYPE_CHECKING

from labkit.labs import front_door

if TYPE_CHECKING:
    from labkit.labs.accounting.charts.memory import *  # noqa: F403
    from labkit.labs.accounting.charts.speed import *  # noqa: F403
    from labkit.labs.accounting.exercise import *  # noqa: F403
    from labkit.labs.accounting.explorer import *  # noqa: F403
    from labkit.labs.accounting.story.memory import *  # noqa: F403
    from labkit.labs.accounting.story.speed import *  # noqa: F403
    from labkit.labs.accounting.tables.account import *  # noqa: F403
    from labkit.labs.accounting.tables.measured import *  # noqa: F403
    from labkit.labs.accounting.tables.reading import *  # noqa: F403
    from labkit.labs.accounting.targets import *  # noqa: F403
    from labkit.labs.accounting.theory import *  # noqa: F403

__getattr__, __dir__ = front_door(__name__)
