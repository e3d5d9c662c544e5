"""The names under which a server may be asked for. A page of another site reaches it only under a name of its own."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from typing import Any

from profiler_server.settings import LOOPBACK_HOSTS, WILDCARD_HOSTS, Settings

_HOST = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::\d{1,5})?")


class Hosts:
    """What `Host` may say: loopback names, the bound address, this machine's name on a network, and those allowed."""

    def __init__(self, settings: Settings) -> None:
        own = () if settings.is_loopback else (socket.gethostname(),)
        bound = () if settings.host in WILDCARD_HOSTS else (settings.host,)
        given = (strip_port(host.lower()) or host.lower() for host in settings.allowed_hosts)
        self.names = tuple(sorted({*LOOPBACK_HOSTS, *given, *(name.lower() for name in (*own, *bound))}))
        self._is_wildcard = settings.host in WILDCARD_HOSTS

    def take(self, scope: Mapping[str, Any], header: str) -> bool:
        """Say whether a request names this server. One bound to every address has that which the client reached."""
        host = strip_port(header)
        if host in self.names:
            return True
        reached = scope.get("server")
        return self._is_wildcard and bool(host) and reached is not None and host == str(reached[0])


def strip_port(header: str) -> str:
    """Return the host of `host:port` or `[::1]:port` in lower case; empty for what is neither."""
    found = _HOST.fullmatch(header.lower())
    return (found["v6"] or found["name"]) if found else ""
