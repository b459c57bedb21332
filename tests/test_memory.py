"""How much memory is free, as the system says it: of the machine, of control groups, of the address space."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from einsumx.host import free_memory

GB = 10**9
MACHINE = {"proc/meminfo": f"MemTotal: {90 * GB // 1024} kB\nMemAvailable:    {64 * 1024} kB\n"}
AVAILABLE = 64 * 2**20
V1, V2 = "sys/fs/cgroup/memory", "sys/fs/cgroup"


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A machine whose files say what they are told to; no address space is limited."""
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(free_memory, "_ROOT", f"{tmp_path}/")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    def tell(files: dict[str, str]) -> int | None:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return free_memory.free_host_bytes()

    return tell


def second(folder: str, limit: object, used: int) -> dict[str, str]:
    return {f"{V2}/{folder}/memory.max": f"{limit}\n", f"{V2}/{folder}/memory.current": f"{used}\n"}


def first(folder: str, limit: int, used: int) -> dict[str, str]:
    return {
        f"{V1}/{folder}/memory.limit_in_bytes": f"{limit}\n",
        f"{V1}/{folder}/memory.usage_in_bytes": f"{used}\n",
    }


def test_without_groups_it_is_what_the_machine_has_available(system: Any) -> None:
    assert system(MACHINE) == AVAILABLE


@pytest.mark.parametrize(("outer", "inner", "left"), [(5000, 9000, 4000), (9000, 5000, 3000), ("max", 5000, 3000)])
def test_the_tightest_of_nested_groups_counts(system: Any, outer: object, inner: int, left: int) -> None:
    groups = {**second("user", outer, 1000), **second("user/job", inner, 2000)}
    assert system({**MACHINE, "proc/self/cgroup": "0::/user/job/step\n", **groups}) == left


@pytest.mark.parametrize(
    ("group", "groups", "left"),
    [
        ("/job", second("job", "max", 2000), AVAILABLE),
        ("/mine", {**second("mine", 9000, 1000), **second("theirs", 10, 5)}, 8000),
        ("/docker/0123", second("", 7000, 1000), 6000),
        ("/../other", second("", 7000, 1000), 6000),
        ("/job", second("job", 5000, 6000), 0),
    ],
    ids=["no limit", "another process's", "the root of a container", "above that root", "over its limit"],
)
def test_what_the_groups_of_this_process_leave_counts(
    system: Any, group: str, groups: dict[str, str], left: int
) -> None:
    assert system({**MACHINE, "proc/self/cgroup": f"0::{group}\n", **groups}) == left


def test_pages_of_files_in_a_group_are_free(system: Any) -> None:
    stat = {f"{V2}/job/memory.stat": "anon 1500\nactive_file 200\ninactive_file 300\nfile 900\n"}
    assert system({**MACHINE, "proc/self/cgroup": "0::/job\n", **second("job", 5000, 2000), **stat}) == 3500


def test_groups_of_the_first_kind_are_those_of_the_memory_controller(system: Any) -> None:
    groups = {**first("job", 5000, 2000), **first("cpus", 10, 5), **first("", 2**63 - 4096, 90)}
    stat = {f"{V1}/job/memory.stat": "inactive_file 7\ntotal_active_file 200\ntotal_inactive_file 300\n"}
    lines = "12:cpu,cpuacct:/cpus\n4:memory:/job\n1:name=systemd:/cpus\n0::/job\n"
    assert system({**MACHINE, "proc/self/cgroup": lines, **groups, **stat}) == 3500


def test_what_is_left_of_the_address_space_counts(system: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    limit = 10 * resource.getpagesize()
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, -1) if which == resource.RLIMIT_AS else (1, 1))
    assert system({**MACHINE, "proc/self/statm": "7 5 1 1 0 1 0\n"}) == 3 * resource.getpagesize()


def test_a_system_without_proc_says_what_sysconf_does(system: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {"SC_AVPHYS_PAGES": 3, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", lambda name: pages[name], raising=False)
    assert system({}) == 3 * 4096


def test_a_system_that_says_nothing_is_not_guessed_at(system: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> int:
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr(os, "sysconf", unknown, raising=False)
    assert system({}) is None
