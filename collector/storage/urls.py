"""Take URLs such as s3://bucket/runs as places of runs: open them through fsspec, and explain failures."""

from __future__ import annotations

import importlib.util
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collector.format.schema import layout
from collector.format.schema.errors import UsageError
from collector.format.schema.removal import ensure_folder, ensure_run_folder

_URL = re.compile(r"([a-z][a-z0-9+.-]*)://")
_PACKAGES = {
    **dict.fromkeys(("s3", "s3a"), "s3fs"),
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("abfs", "abfss", "az"), "adlfs"),
}
_EXTRA = "fsspec and s3fs: pip install 'stepscope[storage]'"
_KEYS_MISSING = ("NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "TokenRetrievalError")
SPOOL_VARIABLE = "PROFILER_SPOOL_PATH"
SPOOL = "profiler_spool"
"""The folder in which a run for a URL is recorded, in the current folder by default."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_REASON = 200


def is_url(place: object) -> bool:
    return isinstance(place, str) and _URL.match(place) is not None


def find_missing_package(url: str) -> str:
    """Return in words what is missing before a run can be put at a URL, such as a package to install; "" if nothing."""
    scheme = url.partition("://")[0]
    package = _PACKAGES.get(scheme)
    if importlib.util.find_spec("fsspec") is None or (package == "s3fs" and importlib.util.find_spec("s3fs") is None):
        return _EXTRA
    if scheme == "memory":
        return "a place that outlives its process, such as file:///path"
    if package is not None and importlib.util.find_spec(package) is None:
        return f"{package}: pip install {package}"
    return ""


def find_spool(url: str) -> Path:
    pieces = [_UNSAFE.sub("_", piece).strip(".") or "_" for piece in url.partition("://")[2].split("/") if piece]
    return Path(os.environ.get(SPOOL_VARIABLE) or SPOOL).expanduser().absolute().joinpath(*(pieces or ["run"]))


def split_url(url: str) -> tuple[str, str]:
    """Return the URL of the folder that holds a run, and the name of the run."""
    folder, _, name = url.rstrip("/").rpartition("/")
    return folder, name


@dataclass(frozen=True)
class Remote:
    """A folder behind a URL: `files` is the fsspec file system, `path` the folder in it."""

    url: str
    files: Any
    path: str

    @property
    def is_local(self) -> bool:
        """Whether the URL names a folder of this machine's file system."""
        return "file" in (self.files.protocol if isinstance(self.files.protocol, tuple) else (self.files.protocol,))

    def make_parent(self, path: str) -> None:
        """Make the parent folder of a file of the run, on a local file system only; buckets need no folders."""
        if self.is_local:
            ensure_run_folder(Path(self.path), layout.PROFILER_FOLDER)
            ensure_folder(Path(path).parent)

    def join(self, name: str) -> str:
        return f"{self.path}/{name}"


def open_remote(url: str) -> Remote:
    """Return the folder at a URL, without a request. UsageError for an unknown kind, or a missing package."""
    if missing := find_missing_package(url):
        raise UsageError(f"{url} needs {missing}")
    from fsspec.core import url_to_fs

    try:
        files, path = url_to_fs(url, use_listings_cache=False)
    except (ValueError, ImportError, TypeError) as error:
        raise UsageError(f"{url} cannot be opened: {' '.join(str(error).split())[:_LONGEST_REASON]}") from None
    return Remote(url.rstrip("/"), files, str(path).rstrip("/"))


def explain(error: BaseException) -> str:
    """Return in one line why a URL could not be read or written, from the exception."""
    if lacks_keys(error):
        return "there are no credentials for it (for s3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile)"
    text = " ".join(str(error).split())[:_LONGEST_REASON] or type(error).__name__
    if isinstance(error, PermissionError):
        return f"it refuses these credentials ({text})"
    if isinstance(error, FileNotFoundError):
        return f"it is not there ({text})"
    return text


def lacks_keys(error: BaseException) -> bool:
    """Return whether the exception is due to missing or refused credentials, so that another attempt would fail, too."""
    return type(error).__name__ in _KEYS_MISSING or isinstance(error, PermissionError)
