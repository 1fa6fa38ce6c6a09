"""Run: what was planned, on which node, the rows that were measured, as tables, and a summary in a few lines."""

from __future__ import annotations

import html
import json
import shutil
from collections.abc import Iterable
from dataclasses import asdict, replace
from datetime import datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from labkit.engine.errors import MAKE_ROOM, DamagedRun, NowhereToWrite, PlanError
from labkit.engine.files import replace_file
from labkit.engine.json_lines import file_bytes, read_lines, row_line, size_bytes, tally
from labkit.engine.plan import Plan
from labkit.engine.run_folder import RunFolder, fresh_folder, runs_folder
from labkit.node import Node
from labkit.node.comparability import key_conditions
from labkit.node.conditions import Conditions
from labkit.node.limits import Spec, spec
from labkit.node.network import LENT_LINK
from labkit.provenance import of_run
from labkit.repository import RECORDED, REPOSITORY

if TYPE_CHECKING:
    import pandas as pd
    from pandas.api.typing import SeriesGroupBy


class Run(RunFolder):
    """One launch: what was planned, on which node, and every row that was measured.

    The same class reads a run that is going on, one that failed half-way and a recorded one; rows are appended by the
    workers as they are measured, so whatever the folder holds is readable.
    """

    def __init__(self, folder: Path | str, *, recorded: bool = False, of_node: int = 0):
        super().__init__(folder, of_node=of_node)
        self.recorded = recorded
        self._tally: dict[str, Any] = {}
        self._key_conditions: tuple[int | None, dict[str, float | str]] | None = None

    @classmethod
    def create(
        cls,
        plan: Plan,
        *nodes: Node,
        networks: tuple[dict[str, Any], ...] = (),
        hosts: tuple[str, ...] = (),
    ) -> Self:
        """Make a private folder named <time>-<lab>-<plan>, holding the plan and the node.

        A run on several nodes also holds the inventories of all, in the order of ranks, their networks and host names.
        Raises NowhereToWrite where the folder cannot be made, PlanError where the plan cannot be written down.
        """
        run, plan_text = None, plan.to_json()  # it runs the plan's own code, whose errors are not the folder's
        try:
            run = cls(fresh_folder(f"{datetime.now():%Y%m%d-%H%M%S}-{plan.lab}-{plan.name}"))
            run.logs.mkdir(mode=0o700)
            replace_file(run.plan_file, plan_text)
            run.write_nodes(nodes, networks, hosts)
        except NowhereToWrite:
            raise
        except OSError as error:
            if run is not None:
                shutil.rmtree(run.folder, ignore_errors=True)
            raise NowhereToWrite(f"{runs_folder()} cannot be written: {error.strerror}. {MAKE_ROOM}") from None
        return run

    @cached_property
    def plan(self) -> Any:
        """The plan, as its lab's class: a lab knows its own knobs, the engine only those of Plan."""
        try:
            return Plan.from_json(file_bytes(self.plan_file).decode(errors="replace"))
        except (DamagedRun, PlanError) as error:
            raise type(error)(f"{self.plan_file}: {error}") from None

    def write_nodes(
        self, nodes: tuple[Node, ...], networks: tuple[dict[str, Any], ...], hosts: tuple[str, ...]
    ) -> None:
        """Write down the node; of a run on several also all inventories, and the host names beside the logs.

        `networks` tells of each node what `network` returns.
        """
        replace_file(self.node_file, nodes[0].to_json())
        if len(nodes) > 1:
            networks_of_nodes = networks or ({},) * len(nodes)
            records = [
                asdict(each) | {"network": network} for each, network in zip(nodes, networks_of_nodes, strict=True)
            ]
            replace_file(self.nodes_file, json.dumps(records, indent=1, ensure_ascii=False))
        if hosts:
            replace_file(self.hosts_file, json.dumps(hosts))

    @cached_property
    def node(self) -> Node:
        """The inventory of the only node, or of the first one."""
        try:
            return Node.from_json(file_bytes(self.node_file).decode())
        except ValueError as error:
            why = f"{error}. Without it, nobody knows which machine the run was measured on"
            raise DamagedRun(f"{self.node_file} cannot be read: {why}") from None

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The inventories of all nodes."""
        if not self.nodes_file.exists():
            return (self.node,)
        try:
            nodes = tuple(Node.from_json(json.dumps(record)) for record in json.loads(file_bytes(self.nodes_file)))
        except (ValueError, TypeError, RecursionError) as error:
            raise DamagedRun(f"{self.nodes_file} cannot be read: {error}") from None
        return nodes or (self.node,)

    def network(self, node: int) -> dict[str, Any]:
        """Return a node's `interface` to the others, its `gbit_per_s` (None: not told), and `cards`; {} if unknown."""
        records = json.loads(file_bytes(self.nodes_file)) if self.nodes_file.exists() else [{}]
        return records[node].get("network", {})

    @property
    def datasheet(self) -> Spec | None:
        """The datasheet of the run's GPUs; None for CPU processes, and for GPUs of which no datasheet is known."""
        return spec(self.node.gpus[0].name) if self.plan.device == "cuda" and self.node.gpus else None

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """The nodes' host names where they are known; a recorded run does not tell them."""
        try:
            return tuple(map(str, json.loads(file_bytes(self.hosts_file))))
        except (OSError, ValueError, TypeError):
            return ()

    @cached_property
    def node_count(self) -> int:
        return len(self.nodes) if self.nodes_file.exists() else 1

    def node_index(self, rank: int) -> int:
        """Return on which of the run's nodes the rank is, from 0."""
        return rank * self.node_count // self.plan.gpus

    def gpu(self, rank: int) -> int | None:
        """Return the physical index of the GPU that the rank drives; None on a CPU."""
        if self.plan.device != "cuda":
            return None
        index = self.node_index(rank)
        gpus, local_rank = self.nodes[index].gpus, rank - index * self.plan.gpus // self.node_count
        return gpus[local_rank].index if local_rank < len(gpus) else None

    def rank_name(self, rank: int) -> str:
        """Return "rank 3 (node 1, gpu-node-17, GPU 0)", as far as there is a choice of nodes and a GPU."""
        gpu, places = self.gpu(rank), []
        if self.node_count > 1:
            index = self.node_index(rank)
            places += [f"node {index}", *self.hosts[index : index + 1]]
        places += [] if gpu is None else [f"GPU {gpu}"]
        return f"rank {rank} ({', '.join(places)})" if places else f"rank {rank}"

    @property
    def machine(self) -> str:
        """Return what measured: "4 × NVIDIA H200", or "2 nodes with 8 × NVIDIA H200 each"; namespaces are called so."""
        workers = self.plan.gpus // len(self.nodes) if self.plan.device == "cuda" else 0
        labels = list(dict.fromkeys(replace(each, gpus=each.gpus[:workers]).label for each in self.nodes))
        if len(self.nodes) == 1:
            return labels[0]
        if self.network(0).get("interface") == LENT_LINK:
            return f"{len(self.nodes)} network namespaces of one machine ({labels[0]})"
        return f"{len(self.nodes)} nodes with {labels[0]} each" if len(labels) == 1 else " + ".join(labels)

    def conditions(self, node: int = 0) -> Conditions:
        """Return the state of one of the nodes before, during and after the run; `missing` says why none was kept."""
        on_gpus, kept = self.plan.device == "cuda", RunFolder(self.folder, of_node=node).kept_conditions()
        what = f"{self.plan.lab} · {self.plan.name}, {self.plan.gpus} × {'GPU' if on_gpus else 'CPU process'}"
        workers = self.plan.gpus // self.node_count
        machine = self.nodes[node].software(workers if on_gpus else 0) | {"ranks": self.plan.gpus}
        return replace(kept, machine=machine, run=what, source=self.source)

    def key_conditions(self) -> dict[str, float | str]:
        """Return the key figures of the run's conditions, as labkit.node.comparability describes them."""
        try:
            written = self.conditions_file.stat().st_mtime_ns
        except OSError:
            written = None
        if self._key_conditions is None or self._key_conditions[0] != written:
            self._key_conditions = written, key_conditions(self.conditions())
        return self._key_conditions[1]

    @property
    def seconds(self) -> float:
        """Wall time of the whole launch, start-up included."""
        return self.status.get("seconds", float("nan"))

    def rows_files(self) -> list[Path]:
        """Return the files of rows that exist, in the order of ranks."""
        return [file for rank in range(self.plan.gpus) if (file := self.rows_file(rank)).exists()]

    def move_replaced_rows(self) -> str:
        """Move away what is not a regular file in place of a rank's rows; return what was found, "" where nothing was.

        Then the other ranks' rows can be read.
        """
        for file in self.rows_files():
            if not file.is_file():
                moved = file.rename(file.with_name(f"{file.name}.replaced"))
                what = f"{file} was replaced by something that is not a regular file while the run went on"
                return f"{what}: its rows are lost. It is now {moved.name}. Leave that file to labkit, and launch again"
        return ""

    def tally(self) -> dict[str, Any]:
        """Return what was measured: `points`, `rows`, `not_ok` (rows by status), and the `bytes` that were counted.

        A finished run has it in its status, so that a long one is shown at once; of older runs without `missing`
        (points by status). Where a file cannot be read, `problem` says why.
        """
        try:
            files = self.rows_files()
            written = sum(map(size_bytes, files))
            for counted in (self._tally, self.status.get("measured")):
                if (
                    isinstance(counted, dict)
                    and counted.get("bytes") == written
                    and {"points", "rows", "not_ok"} <= {*counted}
                ):
                    return counted
            self._tally = tally(files)
        except (OSError, DamagedRun) as error:
            return {"points": 0, "rows": 0, "not_ok": {}, "bytes": 0, "problem": str(error)}
        return self._tally

    @property
    def gaps(self) -> str:
        """What a run of this node lacks, "7 of 9 points missing: 7 × out of memory"; "" where it lacks nothing."""
        missing = {} if self.recorded else self.tally().get("missing", {})
        each = ", ".join(f"{count} × {status}" for status, count in missing.items())
        return each and f"{sum(missing.values())} of {len(self.plan.points())} points missing: {each}"

    def append(self, rank: int, row: dict[str, Any]) -> None:
        """Append one row to the rank's file; it is on disk when this returns."""
        with self.rows_file(rank).open("a", encoding="utf-8") as file:
            file.write(row_line(rank, self.gpu(rank), {"point": row["point"]}, row))

    @property
    def rows(self) -> pd.DataFrame:
        """Return every measurement: point, rank, gpu, seed, the point's knobs, status, warm_up, then the measured."""
        return self._table(spans=False)

    @property
    def spans(self) -> pd.DataFrame:
        """Return every span of a timeline: as `rows`, with lane, start_us and end_us."""
        return self._table(spans=True)

    def _table(self, *, spans: bool) -> pd.DataFrame:
        files = self.rows_files()
        if not self.recorded:
            return of_run(_read(files, spans), self)
        about = [(file, file.stat()) for file in files]
        states = tuple((file, state.st_size, state.st_mtime_ns) for file, state in about)
        return of_run(_read_once(states, spans).copy(), self)

    def rows_with(self, columns: Iterable[str]) -> pd.DataFrame:
        """Return `rows` with at least these columns: where every row failed, those that were to be measured are NaN."""
        rows = self.rows
        return rows.reindex(columns=[*dict.fromkeys([*rows, *columns])])

    def entries(self, entry: str, columns: Iterable[str] = ()) -> pd.DataFrame:
        """Return the rows of one kind, such as "memory", for all ranks, with at least these columns."""
        rows = self.rows_with(["entry", *columns])
        return rows[rows["entry"] == entry]

    def medians(self, by: list[str], value: str) -> pd.DataFrame:
        """Return one row per setting of the columns `by`: median, spread and count of `value`, and its status.

        Warm-ups are left out. An iteration lasts as long as its slowest rank, so ranks are reduced to their maximum
        first. The spread is `half_spread`. Settings with a failed row have a status other than "ok",
        and a median over the rows that did not fail (NaN where there are none).
        """
        import pandas as pd

        rows = self.rows_with([*by, "seed", "iteration", "warm_up", "status", value])
        rows = rows[~rows["warm_up"].astype(bool)]
        rows = rows.assign(failed=rows["status"] != "ok")
        iterations = rows.groupby([*by, "seed", "iteration"], sort=False, dropna=False)
        slowest = iterations.agg(**{value: (value, "max"), "failed": ("failed", "any")})
        good = slowest[value].where(~slowest["failed"])
        grouped = good.groupby(by, sort=False, dropna=False)
        failures = rows.assign(status=rows["status"].where(rows["failed"])).groupby(by, sort=False, dropna=False)
        table = pd.DataFrame(
            {
                value: grouped.median(),
                f"spread_{value}": half_spread(grouped),
                "count": grouped.count(),
                "status": failures["status"].first().fillna("ok"),
            }
        ).reset_index()
        return of_run(table, self)

    @property
    def source(self) -> str:
        """Return where the rows come from, for the footer of every chart: here or recorded, machine, date, size, which
        points are missing, and whether another program held the run's GPUs, too.
        """
        how = "recorded on" if self.recorded else "measured here,"
        size = f", {self.plan.size} size" if self.plan.size in ("small", "middle") else ""
        status, gaps = self.status, self.gaps and f", {self.gaps}"
        shared = ", ".join(map(str, status.get("contaminated") or []))
        other = f", contaminated: another program held GPU {shared}, too" if shared else ""
        return f"{how} {self.machine}, {status.get('date', self.node.date)}{size}{gaps}{other}"

    @property
    def exports(self) -> Path:
        """The folder for files made of the rows: the run's own, or of a recorded run, which stays as it is, runs/."""
        folder = runs_folder() if self.recorded else self.folder
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def keep(self, name: str) -> Path:
        """Copy the run, without its logs, to data/recorded/<name>, for `replay(name)`; over an earlier run at most."""
        target = RECORDED / name
        if target.exists() and not Run(target).plan_file.exists():
            raise FileExistsError(f"{target} is no recorded run: choose another name")
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(self.folder, target, ignore=shutil.ignore_patterns("logs"))
        return target

    def _summary(self) -> list[tuple[str, str]]:
        return summary(self.plan, self.status, self.tally(), self.source, self.folder)

    def __repr__(self) -> str:
        return "\n".join(f"{what:9} {value}" for what, value in self._summary())

    def _repr_html_(self) -> str:
        left = "style='text-align:left'"
        pairs = [(what, html.escape(value)) for what, value in self._summary()]
        cells = [f"<tr><th {left}>{what}</th><td {left}>{value}</td></tr>" for what, value in pairs]
        return f"<table>{''.join(cells)}</table>"


def _read(files: list[Path], spans: bool) -> pd.DataFrame:
    import pandas as pd

    rows_found = [row for file in files for row in read_lines(file)]
    rows = [row for row in rows_found if ("start_us" in row) == spans]
    columns = dict.fromkeys(name for row in rows for name, value in row.items() if value is not None)
    with pd.option_context("mode.string_storage", "python"):  # pyarrow's text holds no half surrogate pairs
        table = pd.DataFrame(rows, columns=[*columns])
    return table.sort_values(["point", "rank"], kind="stable", ignore_index=True) if len(table) else table


@lru_cache(maxsize=8)
def _read_once(states: tuple[tuple[Path, int, int], ...], spans: bool) -> pd.DataFrame:
    """Read what files of these sizes and times hold: a recorded run is asked again and again, and does not change."""
    return _read([file for file, *_ in states], spans)


def half_spread(values: pd.Series | SeriesGroupBy) -> Any:
    """Return half the interquartile range of the values, or of each group's."""
    return (values.quantile(0.75) - values.quantile(0.25)) / 2


def summary(
    plan: Plan, status: dict[str, Any], measured: dict[str, Any], source: str, folder: Path
) -> list[tuple[str, str]]:
    """Return (what, value) pairs of a run from its plan, status, tally, source and folder."""
    counted = f"{measured['points']} of {len(plan.points())} measured, {measured['rows']} rows"
    why = f": {status['why']}" if status.get("why") else ""
    lines = [
        ("run", f"{plan.lab} · {plan.name}, {status.get('state', 'going on')}{why}"),
        ("source", source),
        ("workers", f"{plan.gpus} × {plan.device}"),
        ("points", measured.get("problem") or counted),
        *_cost_pairs(status),
    ]
    if measured["not_ok"]:
        lines.append(("not ok", ", ".join(f"{count} × {status}" for status, count in measured["not_ok"].items())))
    short = folder.relative_to(REPOSITORY) if folder.is_relative_to(REPOSITORY) else folder
    return [*lines, ("folder", str(short))]


def _cost_pairs(status: dict[str, Any]) -> list[tuple[str, str]]:
    """Return time, launches, processes and GPU memory, as far as the run's status knows them."""
    lines = []
    try:
        if status:
            start, measuring = status["startup_seconds"], status["measuring_seconds"]
            lines.append(("time", f"{status['seconds']:.1f} s: {start:.1f} s start-up, {measuring:.1f} s measuring"))
        if status.get("launches", 1) > 1 and "processes_started" in status:
            lines.append(("launches", f"{status['launches']}: a point ended its workers; fresh ones took up the rest"))
        if "processes_started" in status:
            lines.append(("processes", f"{status['processes_started']} started, {status['processes_left']} left"))
        if before := status.get("gpu_mib_before"):
            after = status["gpu_mib_after"]
            memory = ", ".join(f"GPU {gpu}: {mib} → {after.get(gpu)} MiB" for gpu, mib in before.items())
            lines.append(("GPU memory", memory))
        return [*lines, *(("held", holder) for holder in status.get("held_by_others", []))]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return [("status", f"status.json is damaged: {type(error).__name__}: {error}")] if len(status) > 1 else []
