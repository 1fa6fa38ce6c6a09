"""A topology text that was copied from a terminal, a log or a web page reads as the machine that printed it."""

import html
import re

import machines
import pytest

from labkit.node import parse_topology
from labkit.node.topology import TopologyError

CARDS = (
    "mlx5_10 mlx5_ib0 mlx5_bond_0 mlx4_0 rocep1s0f0 ibp5s0 ibp65s0f1 rdmap16s27 bnxt_re0 irdma0 hfi1_0 "
    "efa_0 qedr0 cxgb4_0 hns_0 ionic_0 erdma_0 mana_0 roceP2p1s0f0np0 NIC12 roce-p1.0 MLX5_0 ib0"
)
TEXTS = {name: machines.text(name) for name in machines.LINKS}


def each_line(text: str, change) -> str:
    return "".join(change(line) for line in text.splitlines(keepends=True))


def coloured(text: str, escape: str) -> str:
    """The text whose header is underlined and whose first row is green, ESC written as `escape`."""
    plain = text.replace("\x1b[4m", "").replace("\x1b[0m", "")
    header, *rows = plain.splitlines(keepends=True)
    header = re.sub("GPU0.*", lambda names: f"{escape}[4m{names[0]}{escape}[0m", header)
    return header + "".join(rows).replace(" X ", f" {escape}[1;32mX{escape}[0m ", 1)


PASTED = {
    "windows": lambda text: text.replace("\n", "\r\n"),
    "captured by script": lambda text: text.replace("\n", "\r\r\n"),
    "indented": lambda text: each_line(text, lambda line: "    " + line),
    "tabs of eight": lambda text: text.expandtabs(8),
    "tabs of four": lambda text: each_line(text, lambda line: line.replace("\t", " \t").expandtabs(4)),
    "single spaces": lambda text: each_line(text, lambda line: re.sub(r"[ \t]+", " ", line)),
    "no break spaces": lambda text: text.replace(" ", "\xa0").replace("\t", "\xa0\xa0"),
    "fenced": lambda text: f"Our node:\n\n```bash\n$ nvidia-smi topo -m\n{text}```\n",
    "after a prompt": lambda text: f"(base) user@gpu-node:~$ nvidia-smi topo -m\n{text}(base) user@gpu-node:~$ \n",
    "before a prompt": lambda text: f"{text}user@gpu-node:~$ ",
    "quoted": lambda text: each_line(text, lambda line: "> " + line),
    "in a log": lambda text: each_line(text, lambda line: "2026-11-28 18:00:00,123 [INFO] node-1: " + line),
    "in a table": lambda text: each_line(text, lambda line: "| " + line.rstrip("\n").replace("\t", " | ") + " |\n"),
    "in a string": lambda text: repr(text.replace("\x1b[4m", "").replace("\x1b[0m", "")),
    "a byte order mark": lambda text: "\ufeff" + text,
    "trailing blanks": lambda text: each_line(text, lambda line: line.rstrip("\n") + "  \t\n"),
    "after nvidia-smi -L": lambda text: f"GPU 0: NVIDIA H200 (UUID: GPU-aa)\n{text}",
    "old line ends": lambda text: text.replace("\n", "\r"),
    "shown by cat -A": lambda text: text.replace("\t", "^I").replace("\n", "$\n"),
    "a web page": lambda text: f"<pre>{html.escape(text)}</pre>\n".replace("\t", "&nbsp;&nbsp;").replace(
        "\n", "<br>\n"
    ),
    "by mpirun": lambda text: each_line(text, lambda line: "[1,0]<stdout>:" + line),
    "a difference": lambda text: each_line(text, lambda line: "+" + line),
    "a notebook's comment": lambda text: each_line(text, lambda line: "# " + line),
    "in bold": lambda text: re.sub(r"(GPU\d+)", r"**\1**", text),
    "twice": lambda text: text + "\n" + text,
    "other column names": lambda text: text.replace("CPU Affinity", "cpu_affinity").replace(
        "NUMA Affinity", "NUMAAffinity"
    ),
    "with sentences": lambda text: f"Why is GPU0 SYS to GPU1?\n{text}GPU0 and GPU1 are joined by SYS here\n",
    "a second command": lambda text: f"{text}$ ibdev2netdev\nmlx5_0 port 1 ==> ib0 (Up)\n",
    "legend left out": lambda text: text.split("\n\n")[0] + "\n",
    "no last line break": lambda text: text.split("\n\n")[0].rstrip("\n"),
} | {
    f"colours, ESC as {escape!r}": lambda text, escape=escape: coloured(text, escape)
    for escape in ("\x1b", "", "^[", "␛", "<ESC>", "&#27;", "\ufffd", "←", r"\x1b", r"\033", r"\u001b", r"\e")
}


@pytest.mark.parametrize("change", PASTED)
@pytest.mark.parametrize("name", TEXTS)
def test_a_pasted_text_reads_as_the_text(name, change):
    pasted, right = parse_topology(PASTED[change](TEXTS[name])), parse_topology(TEXTS[name])
    assert pasted.links == machines.LINKS[name]
    for device, known in zip(pasted.devices, right.devices, strict=True):
        assert (device.name, device.kind, device.numa) == (known.name, known.kind, known.numa)
        assert device.cpus == known.cpus or device.unread
        assert device.label in ("", known.label)


def test_a_sentence_before_and_colours_that_lost_all_but_their_digits():
    text = "GPU0 is 41 degrees hot\n" + TEXTS["h200x4"].replace("\x1b[4m", "4m").replace("\x1b[0m", "0m")
    assert parse_topology(text) == parse_topology(TEXTS["h200x4"])


@pytest.mark.parametrize("card", CARDS.split())
@pytest.mark.parametrize("blank", ["\t", " "])
def test_a_network_card_may_have_any_name(card, blank):
    text = f"\tGPU0\t{card}\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tPXB\t0-23\t1\n{card}\tPXB\t X \t\t\n"
    topology = parse_topology(text.replace("\t", blank))
    assert topology.links == {("GPU0", card): "PXB"}
    assert [(d.kind, d.numa) for d in topology.devices] == [("gpu", 1), ("nic", 1)]
    assert topology.devices[1].label == ("" if card == "NIC12" else card)


def test_two_cards_whose_columns_one_space_parts():
    text = "        GPU0    mlx5_10 mlx5_11 CPU Affinity\nGPU0     X      PIX     SYS     0-7\n"
    text += "mlx5_10 PIX      X      SYS\nmlx5_11 SYS     SYS      X\n"
    assert parse_topology(text).links == {
        ("GPU0", "mlx5_10"): "PIX",
        ("GPU0", "mlx5_11"): "SYS",
        ("mlx5_10", "mlx5_11"): "SYS",
    }


@pytest.mark.parametrize(("old", "now"), [("SOC", "SYS"), ("PSB", "PIX")])
def test_old_classes_read_as_those_of_today(old, now):
    text = f"\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \t{old}\t0-11\nGPU1\t{old}\t X \t0-11\n"
    assert parse_topology(text).links == {("GPU0", "GPU1"): now}


ROWS = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \tPHB\t0-63\t0\t\tN/A\nGPU1\tPHB\t X \t"


@pytest.mark.parametrize(
    ("end", "cpus", "numa", "unread"),
    [
        ("0-63\t0\t\tN/A", range(64), 0, ""),
        ("0-63\t0\t\tN/", range(64), 0, "GPU NUMA ID N/"),
        ("0-63\t0", [], None, "affinities 0-63 0 …"),
        ("0-6", [], None, "affinities 0-6 …"),
        ("", [], None, "affinities …"),
    ],
)
def test_an_affinity_at_the_end_of_the_text_counts_where_it_is_whole(end, cpus, numa, unread):
    topology = parse_topology(ROWS + end)
    assert topology.links == {("GPU0", "GPU1"): "PHB"}
    assert (topology.devices[1].cpus, topology.devices[1].numa, topology.devices[1].unread) == (
        tuple(cpus),
        numa,
        unread,
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("\tNV4\t X \t", "\tNV4?\t X \t", "in row GPU1, column GPU0, not 'NV4\\?'"),
        ("\tNV4\t X \t", "\t X \t", "row GPU1.*column GPU1, not '4-7'"),
        ("\tNV4\t X \t4-7", "\tNV4", "row GPU1, column GPU1.*'0'"),
        ("GPU1\tCPU", "GPU1\tib0\tCPU", "one of CPU Affinity, .*, not 'ib0'"),
        ("GPU1\tCPU", "GPU1\tGPU2\tCPU", "column GPU2, not '0-3'"),
    ],
)
def test_the_cell_that_cannot_be_read_is_named(old, new, said):
    two = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV4\t0-3\t0\nGPU1\tNV4\t X \t4-7\t0\n"
    assert parse_topology(two).links == {("GPU0", "GPU1"): "NV4"}
    for text in (two, two.replace("\t", " "), two.expandtabs(8)):
        blank = next(c for c in ("\t", " ") if c in text)
        changed = re.sub(" +", " ", text) if blank == " " else text
        with pytest.raises(TopologyError, match=said):
            parse_topology(changed.replace(old.replace("\t", blank).replace("  ", " "), new.replace("\t", blank)))


@pytest.mark.parametrize(("text", "said"), [(",GPU0,GPU1\nGPU0,X,NV4\nGPU1,NV4,X\n", "each device's name as a cell")])
def test_a_header_that_is_there_is_not_missed(text, said):
    with pytest.raises(TopologyError, match=said) as error:
        parse_topology(text)
    assert error.value.line == ",GPU0,GPU1"
