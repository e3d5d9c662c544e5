"""What the browser gets: nothing inline, nothing from another host, vendored files as they were vendored."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

FRONTEND = Path(__file__).parents[2] / "frontend"
TEMPLATES = sorted((FRONTEND / "templates").rglob("*.html"))
OWN_STATIC = sorted(
    p for p in (FRONTEND / "static").rglob("*") if p.suffix in (".js", ".css") and "vendor" not in p.parts
)
# Addresses that name a standard or open at a click; nothing is loaded from them by itself.
NAMED_HOSTS = ("http://www.w3.org/", "https://ui.perfetto.dev", "http://127.0.0.1", "http://localhost")


def test_there_are_templates() -> None:
    assert len(TEMPLATES) >= 5


def test_no_inline_script_or_style() -> None:
    inline = re.compile(r"<script(?![^>]*\bsrc=)(?![^>]*application/json)|<style|\sstyle=|\son[a-z]+=", re.IGNORECASE)
    found = {p.name: m.group(0) for p in TEMPLATES if (m := inline.search(p.read_text("utf-8")))}
    assert found == {}


def test_autoescape_is_never_switched_off() -> None:
    found = [p.name for p in TEMPLATES if re.search(r"\|\s*safe\b|autoescape\s+false", p.read_text("utf-8"))]
    assert found == []


def test_nothing_is_loaded_from_another_host() -> None:
    address = re.compile(r"https?://[^\s\"'`)<]+|(?<=[\"'(])//[a-z][^\s\"'`)<]+")
    found = [
        (path.name, text) for path in (*TEMPLATES, *OWN_STATIC) for text in address.findall(path.read_text("utf-8"))
    ]
    assert [(name, text) for name, text in found if not text.startswith(NAMED_HOSTS)] == []


def test_vendored_files_are_those_that_were_vendored() -> None:
    folder = FRONTEND / "static/vendor"
    listed = json.loads((folder / "vendor.json").read_text("utf-8"))
    named = set()
    for entry in listed:
        for key in ("name", "version", "licence", "source"):
            assert entry[key], entry
        for name, checksum in entry["files"].items():
            named.add(name)
            assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == checksum, name
    present = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()} - {"vendor.json"}
    assert present == named


CHECKS = Path(__file__).parents[1] / "js"
COMPILER = CHECKS / "node_modules/typescript/bin/tsc"
NODE = shutil.which("node")


@pytest.mark.skipif(NODE is None or not COMPILER.is_file(), reason="no TypeScript: npm ci --prefix tests/js")
def test_every_module_keeps_to_its_declared_types() -> None:
    command = [NODE or "node", str(COMPILER), "--project", str(CHECKS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-6000:]
