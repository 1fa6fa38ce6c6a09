"""cluster.toml: what a launch on several nodes must know of the cluster, checked before anything is submitted."""

from __future__ import annotations

import dataclasses
import difflib
import os
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from labkit.engine.errors import ClusterError
from labkit.repository import REPOSITORY

FILE = "cluster.toml"
EXAMPLE = "cluster.example.toml"


def settings_file() -> Path:
    """Return where the settings are: $LABKIT_CLUSTER_FILE, or cluster.toml at the top of the checkout."""
    return Path(os.environ.get("LABKIT_CLUSTER_FILE") or REPOSITORY / FILE)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The keys of cluster.toml. Without the file, Slurm's own defaults hold."""

    partition: str = ""  # sbatch --partition; empty: the cluster's default
    account: str = ""  # sbatch --account
    time_minutes: int = 60  # how long a submitted job may take
    keep_minutes: int = 5  # how long a submitted job waits for the next launch; 0 ends it with each launch
    gpus_per_node: int = 0  # of each node of a submitted job; 0: a cluster without GPUs
    cpus_per_node: int = 0  # 0: Slurm's default
    memory_gb_per_node: int = 0  # 0: Slurm's default
    interface: str = ""  # network interface between the nodes, such as "ib0"; empty: the one that leads to the kernel
    setup: tuple[str, ...] = ()  # lines of bash on each node before Python starts: module load, source …/activate
    python: str = ""  # the interpreter on the nodes; empty: the path of the kernel's own
    sbatch: tuple[str, ...] = ()  # further options of sbatch, such as "--qos=long"

    @classmethod
    def read(cls, file: Path | None = None) -> Self:
        """Return the settings of a file. Raises ClusterError, naming file and key, for what is wrong there."""
        file = file or settings_file()
        if not file.exists():
            if "LABKIT_CLUSTER_FILE" in os.environ:
                raise ClusterError(f"LABKIT_CLUSTER_FILE names {file}, which does not exist")
            return cls()
        try:
            found = tomllib.loads(file.read_text())
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ClusterError(f"{file} cannot be read as TOML: {error}") from None
        known = {field.name: field for field in dataclasses.fields(cls)}
        for name, value in found.items():
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                meant = f"did you mean {near[0]!r}?" if near else f"the keys are {', '.join(known)}"
                raise ClusterError(f"{file}: the key {name!r} is not known; {meant}")
            if wrong := _wrong(known[name].default, value):
                raise ClusterError(f"{file}: {name} = {value!r} {wrong}")
        keys: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in found.items()
        }
        return cls(**keys)


def _wrong(default: Any, value: Any) -> str:
    """Return what a value should be, where it is not of the kind of the key's default; "" where it is."""
    if isinstance(default, str):
        return "" if isinstance(value, str) and "\n" not in value else "should be one line of text in quotes"
    if isinstance(default, int):
        whole = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        return "" if whole else "should be a whole number, 0 or more"
    lines = isinstance(value, list) and all(isinstance(line, str) and "\n" not in line for line in value)
    return "" if lines else 'should be a list of lines, such as ["module load cuda"]'
