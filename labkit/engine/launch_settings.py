"""Where a launch may run: how many nodes and GPUs, here or in a Slurm allocation, and what cluster.toml says."""

from __future__ import annotations

import dataclasses
import os
import re
import tomllib
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import Any, Self

from labkit import node
from labkit.engine.errors import ClusterError, PlanError
from labkit.repository import REPOSITORY
from labkit.stored import unknown_key

FILE = "cluster.toml"
# Values of LABKIT_CLUSTER: the Slurm allocation in which the kernel runs; no Slurm, lines to paste; two network
# namespaces of this machine, whose processes stand in for GPUs.
CLUSTERS = ("slurm", "hand", "namespaces")


@dataclass(frozen=True)
class Limits:
    """How long a launch may take: without any sign from any rank once they are ready, and in all.

    Raises PlanError where one of them is no number of seconds.
    """

    patience_s: float
    limit_s: float

    def __post_init__(self) -> None:
        for name, seconds in vars(self).items():
            if isinstance(seconds, bool) or not (issubclass(type(seconds), Real) and seconds >= 0):  # nor is NaN
                raise PlanError(f"{name}={seconds!r}: give a number of seconds, such as 60")

    def within_the_course(self) -> Self:
        """Return them with LABKIT_MAX_MINUTES in all at most, where a course sets it."""
        minutes = limit_from_environment("LABKIT_MAX_MINUTES")
        return self if minutes is None else replace(self, limit_s=min(self.limit_s, 60.0 * minutes))


def limit_from_environment(variable: str) -> int | None:
    """Return the whole number that a course sets for each user in this variable; None where it sets none."""
    text = os.environ.get(variable, "").strip()
    if text and not (text.isdecimal() and int(text) > 0):
        raise PlanError(f"{variable}={text!r}: give a whole number, 1 or more, or leave the variable out")
    return int(text) if text else None


def cluster_name() -> str:
    """Return where launches over nodes go: what LABKIT_CLUSTER names, else Slurm."""
    return os.environ.get("LABKIT_CLUSTER") or "slurm"


def cluster_or_namespaces() -> str:
    """Return where a lesson that needs nodes finds them: outside of Slurm's jobs on this machine, if not told else."""
    in_a_job = "SLURM_JOB_ID" in os.environ
    return cluster_name() if in_a_job or os.environ.get("LABKIT_CLUSTER") else "namespaces"


def nodes_wanted(nodes: int | None = None) -> int | None:
    """Return on how many nodes of a cluster to launch; None for this machine alone, without a cluster."""
    if nodes is not None and not (isinstance(nodes, int) and nodes > 0):
        raise PlanError(f"nodes={nodes!r}: give a number of nodes, 1 or more")
    wanted = nodes or limit_from_environment("LABKIT_NODES")
    if cluster_name() not in CLUSTERS:
        raise PlanError(f"LABKIT_CLUSTER={cluster_name()!r} is not known; it is one of {', '.join(CLUSTERS)}")
    if os.environ.get("LABKIT_CLUSTER"):
        return wanted or 2
    return wanted if wanted and wanted > 1 else None


def gpus_of_a_node() -> int:
    """Return how many GPUs a node shows: this one, or, in a shell of `salloc` on a login node, what was asked for."""
    if cluster_name() == "namespaces":
        return 0
    asked = re.findall(r"\d+(?=,|$)", os.environ.get("SLURM_GPUS_PER_NODE", ""))  # of "4", "h100:4", "a100:2,l4:2"
    if nodes_wanted() and asked and cluster_name() == "slurm" and "SLURMD_NODENAME" not in os.environ:
        return sum(map(int, asked))
    return len(node.here().gpus)


def allowed_gpus() -> int:
    """Return how many GPUs of a node one launch may use: those that are visible, at most LABKIT_MAX_GPUS."""
    visible = gpus_of_a_node()
    return min(visible, limit_from_environment("LABKIT_MAX_GPUS") or visible)


def settings_file() -> Path:
    """Return where the settings are: $LABKIT_CLUSTER_FILE, or cluster.toml at the top of the checkout."""
    return Path(os.environ.get("LABKIT_CLUSTER_FILE") or REPOSITORY / FILE)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The keys of cluster.toml."""

    interface: str = ""  # network interface between the nodes, such as "ib0"; empty: the one that leads to the kernel
    setup: tuple[str, ...] = ()  # lines of bash on each node before Python starts: module load, source …/activate
    python: str = ""  # the interpreter on the nodes; empty: the path of the kernel's own

    @classmethod
    def read(cls, file: Path | None = None) -> Self:
        """Return the settings of a file. Raises ClusterError, naming file and key, for what is wrong there."""
        file = file or settings_file()
        if not file.exists():
            if "LABKIT_CLUSTER_FILE" in os.environ:
                raise ClusterError(f"LABKIT_CLUSTER_FILE names {file}, which does not exist")
            return cls()
        try:
            values = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ClusterError(f"{file} cannot be read as TOML: {error}") from None
        fields = {field.name: field for field in dataclasses.fields(cls)}
        if wrong := unknown_key(values, fields):
            raise ClusterError(f"{file}: {wrong}")
        for name, value in values.items():
            if wrong := _type_fault(fields[name].default, value):
                raise ClusterError(f"{file}: {name} = {value!r} {wrong}")
        keys: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        return cls(**keys)


def _type_fault(default: Any, value: Any) -> str:
    """Return what a value should be, where it is not of the kind of the key's default; "" where it is."""
    if isinstance(default, str):
        return "" if isinstance(value, str) and "\n" not in value else "should be one line of text in quotes"
    lines = isinstance(value, list) and all(isinstance(line, str) and "\n" not in line for line in value)
    return "" if lines else 'should be a list of lines, such as ["module load cuda"]'
