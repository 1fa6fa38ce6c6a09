"""Which network interface a node uses, and what listens there."""

from __future__ import annotations

import socket

import psutil
import pytest

from labkit.cluster.interface import chosen, listening


def test_an_interface_is_chosen_by_its_name():
    assert chosen("lo") == ("lo", "127.0.0.1")


def test_without_a_name_it_is_the_one_that_leads_to_the_kernel(monkeypatch):
    monkeypatch.setenv("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1")
    assert chosen("") == ("lo", "127.0.0.1")


@pytest.mark.parametrize(
    ("name", "why"), [("ib7", "no interface 'ib7'.*it has .*lo"), ("", "set `interface` to one of")]
)
def test_what_there_is_is_named_where_none_fits(monkeypatch, name, why):
    monkeypatch.delenv("SLURM_LAUNCH_NODE_IPADDR", raising=False)
    with pytest.raises(ValueError, match=why):
        chosen(name)


def test_it_listens_on_that_address_alone():
    with listening("127.0.0.1") as listener:
        port = listener.getsockname()[1]
        found = [each.laddr.ip for each in psutil.net_connections("inet") if each.laddr and each.laddr.port == port]
        assert found == ["127.0.0.1"]
        with socket.socket() as other, pytest.raises(OSError):
            other.settimeout(0.5)
            other.connect(("127.0.0.2", port))
