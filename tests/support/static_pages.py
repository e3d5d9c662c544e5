"""Save the pages of a run so that they open without a server: links lead to files, modules become one plain script."""

from __future__ import annotations

import html
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from profiler_server.web.frontend import find_frontend
from tests.support.asking import Asker

MOST_PAGES, MOST_BYTES = 60, 12_000_000
_LINK = re.compile(r' (href|src|action|data-source)="(/[^"]*)"')
_MODULES = ("figure", "heat", "copy", "csv", "keys", "panel", "paper", "scroll_boxes", "theme")
_INSTALL = (
    "installCopyButtons",
    "installTableButtons",
    "installKeys",
    "installPanel",
    "installPaper",
    "installScrollBoxes",
    "installThemeSwitch",
)
_WITHOUT = re.compile(
    r"<form\b.*?</form>|<script type=\"module\".*?</script>"
    r"|<a class=\"tool\".*?</a>|<button[^>]*data-copy-address.*?</button>"
    r"|<p class=\"muted\">The program's interface.*?</p>",
    re.DOTALL,
)
"""What asks a server: forms, modules, and links to pages on several runs."""
_VIEWS = re.compile(r"^/runs/[^/]+/(?!timeline)[\w-]*(\?(tab|step)=[\w-]+)?$")
"""Pages of a run that are saved: each page, its tabs, and single steps."""
_RANK = re.compile(r"(?<=[?&])rank=\d+(&|$)")


def save_pages(base_dir: Path, run_id: str, target: Path) -> list[Path]:
    """Write the pages of a run below `base_dir` to the new folder `target`; return their files, Overall first.

    AssertionError if a page does not answer, or if all are larger than MOST_BYTES.
    """
    asker = Asker(base_dir)
    first = f"/runs/{run_id}/"
    names, texts, waiting = {first: "index.html"}, {}, [first]
    while waiting:
        path = waiting.pop(0)
        answer = asker.ask(path, headers={"Accept": "text/html"})
        assert answer.status_code == 200, f"{path}: {answer.status_code}"
        texts[path] = answer.text
        for link in _list_views(answer.text):
            if link not in names and len(names) < MOST_PAGES:
                names[link] = f"{re.sub(r'[^a-z0-9]+', '-', link.partition(first)[2].lower()).strip('-')}.html"
                waiting.append(link)
    target.mkdir(parents=True)
    for path, text in texts.items():
        (target / names[path]).write_text(_rewrite(text, names), encoding="utf-8")
    _save_static(target / "static")
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    assert size < MOST_BYTES, f"the saved pages take {size} bytes"
    return [target / name for name in names.values()]


def _list_views(text: str) -> Iterator[str]:
    for _, link in _LINK.findall(_WITHOUT.sub("", text)):
        path = _leave_out_rank(html.unescape(link).partition("#")[0])
        if _VIEWS.match(path):
            yield path


def _leave_out_rank(path: str) -> str:
    """Return the address of the first rank, which is the only one that is saved."""
    return _RANK.sub("", path).rstrip("?&")


def _rewrite(text: str, names: dict[str, str]) -> str:
    def lead(found: re.Match[str]) -> str:
        name, link = found[1], html.unescape(found[2])
        path, _, anchor = link.partition("#")
        path = _leave_out_rank(path)
        if path.startswith("/static/"):
            return f' {name}="static/{unquote(urlsplit(path).path).split("/", 3)[3]}"'
        if name == "href" and path in names:
            return f' href="{names[path]}{"#" + anchor if anchor else ""}"'
        if name == "href" and path == "/":
            return ' href="../index.html"'
        if name == "href" and path.partition("?")[0].endswith("/timeline"):
            return ' href="../images/timeline.png"'
        return ' title="This needs the server."' if name == "href" else ""

    script = '<script defer src="static/pages.js"></script>\n</body>'
    return _LINK.sub(lead, _WITHOUT.sub("", text)).replace("</body>", script)


def _save_static(target: Path) -> None:
    source = find_frontend() / "static"
    for folder in ("css", "vendor"):
        shutil.copytree(source / folder, target / folder)
    shutil.copy(source / "icon.svg", target)
    (target / "js").mkdir()
    shutil.copy(source / "js/boot.js", target / "js")
    (target / "pages.js").write_text(bundle_modules(source / "js"), encoding="utf-8")


def bundle_modules(folder: Path) -> str:
    """Return the modules of the pages as one script: a browser loads no module from a file."""
    parts: dict[str, str] = {}
    for name in _MODULES:
        _add_module(folder, name, parts)
    calls = "".join(f"for (const module of Object.values(modules)) module.{name}?.();\n" for name in _INSTALL)
    return "(() => {\nconst modules = {};\n" + "".join(parts.values()) + calls + "})();\n"


def _add_module(folder: Path, name: str, parts: dict[str, str]) -> None:
    if name in parts:
        return
    text = (folder / f"{name}.js").read_text("utf-8")
    for imported in re.findall(r'^import .* from "\./(\w+)\.js";$', text, re.MULTILINE):
        _add_module(folder, imported, parts)
    text = re.sub(r'^import (\{.*\}) from "\./(\w+)\.js";$', r"const \1 = modules.\2;", text, flags=re.MULTILINE)
    exported = re.findall(r"^export (?:async )?(?:function|const|class) (\w+)", text, re.MULTILINE)
    body = re.sub(r"^export ", "", text, flags=re.MULTILINE)
    parts[name] = f"modules.{name} = (() => {{\n{body}\nreturn {{ {', '.join(exported)} }};\n}})();\n"
