"""The settings of a server. No other module holds their defaults."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from pathlib import Path

UPLOAD_LIMIT_BYTES = 4 << 30
IMPORT_MEMORY_BYTES = 600 << 20
LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
WILDCARD_HOSTS = ("0.0.0.0", "::", "")
TOKEN_FORM = re.compile(r"[A-Za-z0-9._~-]{16,256}")
"""The form of a token: safe in an address, a header and a cookie, and too long to be guessed."""


@dataclass(frozen=True)
class Settings:
    """The settings of a server.

    `allowed_hosts` are further host names for browsers, such as that of a proxy. `upload_limit_bytes` is the largest
    upload from a browser; 0 refuses all uploads. `import_memory_bytes` is the memory limit of the process that imports
    an upload. `otlp_endpoint` is the URL for OpenTelemetry metrics, "" for no metrics.

    Without a `token`, a server on loopback answers everyone who reaches it, and a server on a network answers nobody.
    """

    base_dir: Path
    host: str = "127.0.0.1"
    port: int = 8080
    allowed_hosts: tuple[str, ...] = ()
    upload_limit_bytes: int = UPLOAD_LIMIT_BYTES
    import_memory_bytes: int = IMPORT_MEMORY_BYTES
    token: str = field(default="", repr=False)
    otlp_endpoint: str = ""

    @property
    def is_loopback(self) -> bool:
        return is_loopback_host(self.host)

    @property
    def asks_for_token(self) -> bool:
        return bool(self.token) or not self.is_loopback


def is_loopback_host(host: str) -> bool:
    """Return whether an address can be reached from this machine only: `localhost`, ::1, or any in 127.0.0.0/8."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
