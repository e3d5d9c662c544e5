"""An S3-compatible server on this machine, and folders in it."""

from __future__ import annotations

import logging
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.ranks import find_port

BUCKET = "bucket"
_servers: list[Any] = []


@dataclass(frozen=True)
class Bucket:
    """A bucket, and the server that it is on."""

    address: str
    server: Any
    files: Any

    def url(self, name: str) -> str:
        return f"s3://{BUCKET}/{name}"

    def list_files(self, name: str) -> set[str]:
        prefix = f"{BUCKET}/{name}/"
        self.files.invalidate_cache()
        return {path.removeprefix(prefix) for path in self.files.find(f"{BUCKET}/{name}")}

    def remove(self) -> None:
        """Remove the bucket with all that is in it."""
        self.files.rm(BUCKET, recursive=True)

    def make(self) -> None:
        self.files.mkdir(BUCKET)


@contextmanager
def serve_bucket(monkeypatch: pytest.MonkeyPatch, home: Path) -> Iterator[Bucket]:
    """Serve an empty bucket, and set the environment so that URLs of s3 lead there."""
    pytest.importorskip("s3fs")
    server_kind: Any = pytest.importorskip("moto.server").ThreadedMotoServer
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = _find_server(server_kind)
    host, port = server.get_host_and_port()
    address = f"http://{host}:{port}"
    set_account(monkeypatch, home, address)
    import s3fs

    urllib.request.urlopen(f"{address}/moto-api/reset", b"", timeout=60).close()  # it keeps buckets for all its servers
    files = s3fs.S3FileSystem(use_listings_cache=False, endpoint_url=address)
    files.mkdir(BUCKET)
    yield Bucket(address, server, files)


def _find_server(kind: Any) -> Any:
    """Return the server of this process, another one where a test has stopped it."""
    if not _servers or not _servers[-1]._thread.is_alive():
        server = kind(ip_address="127.0.0.1", port=find_port(), verbose=False)
        server.start()
        _servers.append(server)
    return _servers[-1]


def set_account(monkeypatch: pytest.MonkeyPatch, home: Path, address: str, with_keys: bool = True) -> None:
    """Set what S3 clients read of the environment, and forget those that have read it."""
    sys.modules["s3fs"].S3FileSystem.clear_instance_cache()
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    if with_keys:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
