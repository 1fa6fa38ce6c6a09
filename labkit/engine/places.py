"""Where the ranks of a run are: on which of its nodes, and on which GPU there."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from labkit.engine.errors import DamagedRun
from labkit.engine.folder import Folder, replace_file
from labkit.engine.lines import content
from labkit.node import Node
from labkit.node.network import LENT_LINK


class Places(Folder):
    """A run's folder that also knows its nodes: as many ranks on each, in the order of the nodes."""

    plan: Any  # of Run
    of_node = 0  # whose conditions are meant: each node of several writes its own files

    @property
    def conditions_file(self) -> Path:
        return self._of_node(super().conditions_file)

    @property
    def samples_file(self) -> Path:
        return self._of_node(super().samples_file)

    def _of_node(self, file: Path) -> Path:
        return file.with_stem(f"{file.stem}-node{self.of_node}") if self.of_node else file

    def write_nodes(
        self, nodes: tuple[Node, ...], networks: tuple[dict[str, Any], ...], hosts: tuple[str, ...]
    ) -> None:
        """Write down the node; of a run on several also all inventories, and the host names beside the logs.

        `networks` tells of each node what `network` returns.
        """
        replace_file(self.node_file, nodes[0].to_json())
        if len(nodes) > 1:
            told = networks or ({},) * len(nodes)
            records = [asdict(each) | {"network": network} for each, network in zip(nodes, told, strict=True)]
            replace_file(self.nodes_file, json.dumps(records, indent=1, ensure_ascii=False))
        if hosts:
            replace_file(self.hosts_file, json.dumps(hosts))

    @cached_property
    def node(self) -> Node:
        """The inventory of the only node, or of the first one."""
        try:
            return Node.from_json(content(self.node_file).decode())
        except ValueError as error:
            why = f"{error}. Without it, nobody knows which machine the run was measured on"
            raise DamagedRun(f"{self.node_file} cannot be read: {why}") from None

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The inventories of all nodes."""
        if not self.nodes_file.exists():
            return (self.node,)
        try:
            nodes = tuple(Node.from_json(json.dumps(record)) for record in json.loads(content(self.nodes_file)))
        except (ValueError, TypeError, RecursionError) as error:
            raise DamagedRun(f"{self.nodes_file} cannot be read: {error}") from None
        return nodes or (self.node,)

    def network(self, node: int) -> dict[str, Any]:
        """Return a node's `interface` to the others, its `gbit_per_s` (None: not told), and `cards`; {} if unknown."""
        records = json.loads(content(self.nodes_file)) if self.nodes_file.exists() else [{}]
        return records[node].get("network", {})

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """The nodes' host names where they are known; a recorded run does not tell them."""
        try:
            return tuple(map(str, json.loads(content(self.hosts_file))))
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

    def place(self, rank: int) -> str:
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
