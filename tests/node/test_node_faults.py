"""What NVML and the kernel log say of faults: faults for certain, remarks, and what may not be read."""

import subprocess
from types import SimpleNamespace

import pytest
from fake_nvml import HealthyNvml

from labkit.node import Node, xids
from labkit.node.faults import FAULT, NOT_READABLE, REMARK, Finding, findings, summary
from labkit.node.gpus import read_gpus

BOOT = "[    0.000000] Linux version 6.8.0-136-generic\n"
# NVIDIA's Xid documentation, and gpud's components/accelerator/nvidia/xid/matcher.go
FALLEN = "[ 5107.644336] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
# gpud, components/accelerator/nvidia/error/xid/README.md; akash-network/support issue 244; open-gpu-kernel-modules 1150
APPLICATION = """[   70.1] NVRM: Xid (PCI:0000:3b:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception
[   71.2] NVRM: Xid (PCI:0000:3b:00): 31, pid=2512125, name=python3.10, Ch 00000008, intr 00000000. MMU Fault
[   72.3] NVRM: Xid (PCI:0000:3b:00): 43, pid=1045242, name=pt_main_thread, Ch 00000008
[   73.4] NVRM: Xid (PCI:0000:5d:00): 45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 43
"""
# NVIDIA/nvtrust issue 124, and the Fabric Manager User Guide
SWITCH = """[   38.1] nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Data {0x0000002b, 0x0000002b, 0x00000000}
[   38.2] nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Non-fatal, Link 44 Minion Link DLREQ interrupt
[   38.3] nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Severity 0 Engine instance 44 Sub-engine instance 00
[  138.4] nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 36 LTSSM Fault Up
"""
# NVIDIA/NVSentinel issue 155
WITHOUT_CODE = """[ 1843.308145] NVRM: The NVIDIA GPU 0000:b3:00.0
               NVRM: (PCI ID: 10de:26b5) installed in this system has
               NVRM: fallen off the bus and is not responding to commands.
"""
# leptonai/gpud pull request 1174; the older form: NVIDIA's Xid documentation
FORMS = {
    "NVRM: Xid (PCI:0000:5d:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x025001c6 0x00000000)": FAULT,
    "NVRM: Xid (PCI:0000:5d:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008)": REMARK,
    "NVRM: Xid (0000:5d:00): 62, 0096(1c54) 00000000 00000000": FAULT,
    "NVRM: Xid (PCI:0000:5d:00 GPU-I:05): 95, pid=7, name=python3, Uncontained": FAULT,
    "NVRM: Xid (PCI:0000:5d:00): 63, pid=1896, Row Remapper: New row marked for remapping, reset gpu": REMARK,
    "NVRM: Xid (PCI:0000:5d:00): 94, pid='<unknown>', name=<unknown>, Contained: SM (0x1). RST: No": REMARK,
    "NVRM: Xid (PCI:0000:5d:00): 999, something new": REMARK,
}


@pytest.fixture
def found(monkeypatch):
    """Return what is found on a node with two H200s: by its kernel log, and by NVML with some answers replaced."""

    def found(log: str | None = BOOT, **sick):
        HealthyNvml(**sick).install(monkeypatch)
        monkeypatch.setattr("labkit.node.faults.kernel_log", lambda: log)
        gpus = read_gpus()[0]
        return findings(Node(gpus, "", 1, (), 1, None, None, {}, "", ""))

    return found


def test_a_healthy_node_has_no_finding(found):
    assert found() == ()
    assert summary(()) == "no fault, no remark"


def test_a_gpu_off_the_bus_is_a_fault_with_gpu_count_and_time(found):
    (fault,) = found(BOOT + FALLEN * 2)
    detail = "2 times since boot, last 85 min after boot"
    assert fault == Finding("Xid 79 (fallen off the bus)", "GPU 0 (GPU-aa)", detail, FAULT)
    assert str(fault) == f"GPU 0, Xid 79 (fallen off the bus) {detail}"
    (fault,) = found(BOOT + WITHOUT_CODE)
    assert (fault.what, fault.where, fault.kind) == ("fallen off the bus", "PCI 0000:b3:00", FAULT)


def test_xids_of_applications_are_remarks_and_name_no_process(found):
    several = found(BOOT + APPLICATION)
    assert [each.kind for each in several] == [REMARK] * 4
    assert all("application" in each.what for each in several)
    assert not any("python" in str(each) or "pt_main" in str(each) for each in several)
    assert several[-1].where == "GPU 1 (GPU-bb)"


@pytest.mark.parametrize("line", FORMS)
def test_other_forms_of_a_message(found, line):
    (one,) = found(f"{BOOT}[   12.5] {line}\n")
    assert (one.where, one.kind) == ("GPU 1 (GPU-bb)", FORMS[line])


def test_a_switch_says_itself_whether_it_is_fatal(found):
    fatal, other = found(BOOT + SWITCH)
    assert (fatal.what, fatal.kind) == ("SXid 20034 (Link 36 LTSSM Fault Up)", FAULT)
    assert fatal.where == "NVSwitch 3 (PCI 0000:c1:00)"
    assert other.kind == REMARK and other.detail.startswith("1 time since boot"), "one event in three lines"


SICK = {
    "nvmlDeviceGetRemappedRows": [((0, 3, 1, 0), "row remapping", FAULT), ((0, 3, 0, 1), "row remapping", FAULT)],
    "nvmlDeviceGetRetiredPagesPendingStatus": [(1, "page retirement", FAULT)],
    "nvmlDeviceGetFieldValues": [([HealthyNvml.field(1)], "driver", FAULT)],
    "nvmlDeviceGetCurrPcieLinkWidth": [(8, "PCIe link:", FAULT)],
    "nvmlDeviceGetTemperatureThreshold": [(31, "temperature:", FAULT)],
    "nvmlDeviceGetPcieReplayCounter": [(4000, "PCIe replays:", REMARK)],
    "nvmlDeviceGetTotalEccErrors": [(7, "corrected ECC errors:", REMARK)],
    "nvmlDeviceGetNvLinkErrorCounter": [(400, "NVLink replays:", REMARK)],
    "nvmlDeviceGetPowerManagementDefaultLimit": [(750_000, "power limit:", REMARK)],
    "nvmlDeviceGetRowRemapperHistogram": [(SimpleNamespace(low=1, none=0), "spare rows:", REMARK)],
}


@pytest.mark.parametrize(("query", "case"), [(query, case) for query, cases in SICK.items() for case in cases])
def test_a_sick_counter_is_a_fault_or_a_remark(found, query, case):
    answer, what, kind = case
    assert {(what, kind)} <= {(each.what, each.kind) for each in found(**{query: lambda *_: answer})}
    faults = [each for each in found(**{query: lambda *_: answer}) if each.kind == FAULT]
    assert len(faults) == 2 * (kind == FAULT), "one per GPU"


def test_links_that_are_down_are_faults_and_missing_bridges_are_none(found):
    def state(up, exist):
        def answer(handle, link):
            return int(link in up) if link < exist else HealthyNvml().lack()

        return answer

    (first, _) = found(nvmlDeviceGetNvLinkState=state({*range(18)} - {3}, 18))
    assert (first.kind, first.detail) == (FAULT, "17 of 18 are up, not link 3")
    pcie = {"nvmlDeviceGetName": lambda h: "NVIDIA H100 PCIe"}
    assert found(**pcie, nvmlDeviceGetNvLinkState=state(range(12), 18)) == (), "12 links by design"
    assert {each.kind for each in found(**pcie, nvmlDeviceGetNvLinkState=state((), 18))} == {REMARK}, "no bridge"
    assert {each.kind for each in found(nvmlDeviceGetNvLinkState=state((), 18))} == {FAULT}
    in_mig = {"nvmlDeviceGetMigMode": lambda h: [1, 1], "nvmlDeviceGetMaxMigDeviceCount": lambda h: 0}
    assert found(**in_mig, nvmlDeviceGetNvLinkState=state((), 18)) == (), "MIG switches NVLink off"


def test_an_idle_card_may_have_fewer_lanes_and_vbios_may_differ(found):
    idle = {"nvmlDeviceGetPerformanceState": lambda h: 8, "nvmlDeviceGetCurrPcieLinkWidth": lambda h: 8}
    assert {each.kind for each in found(**idle)} == {REMARK}
    (other,) = found(nvmlDeviceGetVbiosVersion=lambda h: {"gpu0": "96.00.A"}.get(h, "96.00.B"))
    assert (other.what, other.kind, other.where) == ("VBIOS", REMARK, "GPU 1 (GPU-bb)")


def test_what_may_not_be_read_is_a_state_of_its_own(found):
    (log,) = found(None)
    assert log.kind == NOT_READABLE and summary((log,)) == "no fault, no remark; not readable: kernel log"
    refused = found(nvmlDeviceGetRemappedRows=HealthyNvml().forbid)
    assert [(each.kind, each.detail) for each in refused] == [(NOT_READABLE, "does not tell remapped rows")] * 2
    assert {each.what for each in found(failing=["nvmlInit"])} <= {"NVML"}
    (lost, _) = found(failing=["nvmlDeviceGetRemappedRows"])
    assert (lost.what, lost.kind, lost.detail) == ("driver", FAULT, "says: the GPU is lost")


def test_kmsg_is_read_without_what_programs_write_there(tmp_path, monkeypatch):
    # Documentation/ABI/testing/dev-kmsg of the kernel
    text = r"""6,0,0,-;Linux version 6.8.0
3,900,5107644336,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.
 SUBSYSTEM=pci
14,901,5107700000,-;NVRM: Xid (PCI:0000:3b:00): 79, written by a program
3,902,5107800000,-;NVRM: The NVIDIA GPU 0000:b3:00.0\x0aNVRM: has\x0aNVRM: fallen off the bus and is not responding
"""
    (tmp_path / "kmsg").write_text(text)
    monkeypatch.setattr(xids, "KMSG", tmp_path / "kmsg")
    log = xids.kernel_log()
    assert log is not None and [len(each.seconds) for each in xids.xids(log)] == [1, 1]


def test_without_kmsg_commands_are_asked_and_silence_is_not_a_log(tmp_path, monkeypatch):
    monkeypatch.setattr(xids, "KMSG", tmp_path / "none")
    printed = {"journalctl": "", "dmesg": BOOT}  # a user outside of systemd-journal gets status 0 and no line
    monkeypatch.setattr(subprocess, "run", lambda command, **_: SimpleNamespace(stdout=printed[command[0]]))
    assert xids.kernel_log() == BOOT
    printed["dmesg"] = ""
    assert xids.kernel_log() is None

    def fail(command, **_):
        raise subprocess.TimeoutExpired(command, 10)

    monkeypatch.setattr(subprocess, "run", fail)
    assert xids.kernel_log() is None
