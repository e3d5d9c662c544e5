"""How one server runs. Defaults live here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Settings:
    """`allowed_hosts` are further names under which browsers may ask for the server, such as a proxy's."""

    base_dir: Path
    host: str = "127.0.0.1"
    port: int = 8080
    allowed_hosts: tuple[str, ...] = ()

    @property
    def is_loopback(self) -> bool:
        return self.host in LOOPBACK_HOSTS
