"""What is left of memory is what the machine and every container around the process leave."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from collector.session.closing import measure_headroom

MB = 1 << 20
NAMES = {
    "v2": ("0::/a/b\n", "a", "memory.max", "memory.current", "inactive_file"),
    "v1": ("3:cpu:/x\n7:memory:/a/b\n", "memory/a", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}  # fmt: skip


def write_group(folder: Path, version: str, most: str, used_mb: int, cached_mb: int) -> None:
    _, _, limit, usage, cache = NAMES[version]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / limit).write_text(f"{most}\n")
    (folder / usage).write_text(f"{used_mb * MB}\n")
    (folder / "memory.stat").write_text(f"anon 1\n{cache} {cached_mb * MB}\nother 5\n")


@pytest.mark.parametrize("version", NAMES)
def test_the_narrowest_container_counts_and_its_cached_files_do_not(tmp_path: Path, version: str) -> None:
    processes, groups = tmp_path / "cgroup", tmp_path / "groups"
    processes.write_text(NAMES[version][0])
    outer = groups / NAMES[version][1]
    write_group(outer, version, str(300 * MB), 250, 20)
    write_group(outer / "b", version, "max" if version == "v2" else str(1 << 60), 240, 5)
    assert measure_headroom(processes, groups) == 70 * MB
    write_group(outer / "b", version, str(260 * MB), 240, 5)
    assert measure_headroom(processes, groups) == 25 * MB


def test_without_a_container_the_machine_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"available": 7 * MB})())
    assert measure_headroom(tmp_path / "none", tmp_path / "groups") == 7 * MB
