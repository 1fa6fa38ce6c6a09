"""Recorded runs: one by its name, and which one a lesson reads where a plan was recorded on several machines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from labkit.engine.run import Run
from labkit.repository import RECORDED


def replay(path: Path | str) -> Run:
    """Return the recorded run at `path`: a folder, or a name below data/recorded such as "h200x4/broadcast/sweep".

    Raises FileNotFoundError, naming what is recorded, where there is none; PlanError for a plan that is damaged.
    """
    for folder in (RECORDED / path, Path(path)):
        if (folder / "plan.json").exists():
            run = Run(folder, recorded=True)
            _ = run.plan  # one that is damaged is told here
            return run
    names = sorted(str(file.parent.relative_to(RECORDED)) for file in RECORDED.rglob("plan.json"))
    raise FileNotFoundError(f"no recorded run at {str(path)!r}; recorded are: {', '.join(names) or 'none yet'}")


class Recordings(Mapping[str, str]):
    """A lab's recorded runs: the name of a recording → its path for `replay`, nearest to the reports' number of GPUs.

    `gpus` is the number of GPUs of the reports that the lesson reads. `machines` says for each recording where it was
    made: {"sweep": ("h200x2", "h200x4")}. `own_gpus` gives another number for a single recording, where the run that
    is nearest to the reports teaches less; the lab says why.
    """

    def __init__(
        self,
        lab: str,
        gpus: int,
        machines: Mapping[str, Sequence[str]],
        own_gpus: Mapping[str, int] | None = None,
    ):
        self._paths = {name: [f"{machine}/{lab}/{name}" for machine in made_on] for name, made_on in machines.items()}
        self._gpus = {name: (own_gpus or {}).get(name, gpus) for name in machines}

    def __getitem__(self, name: str) -> str:
        return self.nearest(name, self._gpus[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def nearest(self, name: str, gpus: int) -> str:
        """Return the path of the recording whose number of GPUs is nearest to `gpus`; of two, that with more GPUs.

        Raises KeyError for what the lab did not record, FileNotFoundError where a recording is missing.
        """
        paths = self._paths[name]
        if len(paths) == 1:
            return paths[0]
        counts = {path: replay(path).plan.gpus for path in paths}
        return min(paths, key=lambda path: (abs(counts[path] - gpus), -counts[path]))

    def all(self) -> list[str]:
        """Return the paths of all recordings, also of those that are not the nearest, in the lab's order."""
        return [path for paths in self._paths.values() for path in paths]
