"""Two unattended runs never use a node at the same time: the later one is refused, or waits."""

from __future__ import annotations

import getpass
import os
import re
import threading
import time

import pytest

from labkit.report.node_lock import NodeHeld, hold_node


def test_unattended_runs_take_turns(tmp_path, monkeypatch):
    monkeypatch.setenv("LABKIT_LOCKS", str(tmp_path))
    holder, told = rf"{getpass.getuser()} \(process {os.getpid()}: python.*\) holds this node for an unattended run", []

    def run() -> None:
        with hold_node(True, told.append):
            told.append("runs")

    with hold_node(False, print):
        with pytest.raises(NodeHeld, match=f"^{holder}: wait for its end with ARGS=.--wait"), hold_node(False, print):
            pass
        (second := threading.Thread(target=run)).start()
        time.sleep(1.2)
        assert len(told) == 1 and re.fullmatch(f"waiting: {holder}", told[0]), "told once"
    second.join(10)
    assert told[1:] == ["runs"]
