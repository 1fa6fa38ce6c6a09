"""Lab 12, accounting: does it fit, and is it compute-bound? Pen, paper and exact units, before anything runs."""

from typing import TYPE_CHECKING

from labkit.labs import front_door

if TYPE_CHECKING:
    from labkit.labs.accounting.charts.memory import *  # noqa: F403
    from labkit.labs.accounting.charts.speed import *  # noqa: F403
    from labkit.labs.accounting.exercise import *  # noqa: F403
    from labkit.labs.accounting.explorer import *  # noqa: F403
    from labkit.labs.accounting.story import *  # noqa: F403
    from labkit.labs.accounting.tables.answers import *  # noqa: F403
    from labkit.labs.accounting.tables.memory import *  # noqa: F403
    from labkit.labs.accounting.tables.speed import *  # noqa: F403
    from labkit.labs.accounting.targets import *  # noqa: F403
    from labkit.labs.accounting.theory import *  # noqa: F403

__getattr__, __dir__ = front_door(__name__)
