"""How one server runs. Defaults live here and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

UPLOAD_LIMIT_BYTES = 4 << 30
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Settings:
    """`allowed_hosts` are further names under which browsers may ask for the server, such as a proxy's.

    `upload_limit_bytes` is the most that a browser may send to be imported; 0 takes nothing.
    """

    base_dir: Path
    host: str = "127.0.0.1"
    port: int = 8080
    allowed_hosts: tuple[str, ...] = ()
    upload_limit_bytes: int = UPLOAD_LIMIT_BYTES

    @property
    def is_loopback(self) -> bool:
        return self.host in LOOPBACK_HOSTS
