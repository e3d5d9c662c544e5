"""Build the documents as a site: `python -m tests.support.site [--demo RUN] [TARGET]`, by default in build/site.

The site needs no network and no server: it opens from its files. Dead links, missing anchors and pictures, pages that the
navigation leaves out, and anything that would be loaded from another host are errors. Without --demo the demo's training
is recorded first, which takes half a minute; its saved pages are the site's live demo.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.support.static_pages import save_pages

ROOT = Path(__file__).parents[2]
OUTSIDE = ("SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")
"""Documents that lie beside docs and are pages of the site too."""
_DEMO = ("<!-- demo -->", "[**Look at a recorded run**](demo/index.html) ·")
"""What the first page has in the site only: the saved pages are not there before it is built."""
_SHIM = "https://unpkg.com/iframe-worker/shim"


def build_site(demo: Path, target: Path) -> None:
    """Write the site with the pages of the run `demo` to `target`, which is replaced. RuntimeError names what is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        stage(work)
        save_pages(demo.parent, demo.name, work / "docs/demo")
        built = subprocess.run(
            [sys.executable, "-m", "zensical", "build", "--strict"], cwd=work, capture_output=True, text=True
        )
        if built.returncode:
            raise RuntimeError(built.stdout + re.sub(r"\x1b\[[\d;]*m", "", built.stderr.partition("Traceback")[0]))
        _take_out_network(work / "site")
        for page in (work / "docs").rglob("*.md"):
            shutil.copy(page, work / "site" / page.relative_to(work / "docs"))
        if problems := list_problems(work / "site"):
            raise RuntimeError("\n".join(problems))
        shutil.rmtree(target, ignore_errors=True)
        shutil.move(work / "site", target)


def stage(work: Path) -> None:
    """Copy the documents and what they link to, so that all lie below one folder."""
    shutil.copytree(ROOT / "docs", work / "docs")
    shutil.copytree(ROOT / "examples", work / "docs/examples")
    shutil.copy(ROOT / "zensical.toml", work)
    for name in OUTSIDE:
        text = (ROOT / name).read_text("utf-8")
        (work / "docs" / name).write_text(text.replace("](docs/", "]("), encoding="utf-8")
    for path in (work / "docs").rglob("*.md"):
        text = path.read_text("utf-8")
        path.write_text(re.sub(rf"\]\(\.\./\.\./(?={'|'.join(OUTSIDE)}|examples)", "](../", text), encoding="utf-8")
    first = work / "docs/index.md"
    first.write_text(first.read_text("utf-8").replace(*_DEMO), encoding="utf-8")
    pages = list_pages(work / "zensical.toml")
    (work / "docs" / "llms.txt").write_text(write_index(work / "docs", pages), encoding="utf-8")


def list_pages(config: Path) -> list[tuple[str, str]]:
    """Return section and path of each page in the order of the navigation; the first page has no section."""
    found, section = [], ""
    for line in config.read_text("utf-8").partition("nav = [")[2].partition("\n]")[0].splitlines():
        if page := re.search(r'"([\w/.-]+\.md)"', line):
            found.append((section, page[1]))
        elif group := re.match(r'\s*\{"(.*)" = \[', line):
            section = group[1]
    return found


def write_index(docs: Path, pages: list[tuple[str, str]]) -> str:
    """Return llms.txt: what Stepscope is, and each page as Markdown."""
    first = (docs / pages[0][1]).read_text("utf-8").split("\n\n")[1]
    lines, last = ["# Stepscope", "", f"> {' '.join(first.replace('**', '').split())}"], ""
    for section, path in pages[1:]:
        if section != last:
            lines += ["", f"## {section}", ""]
            last = section
        title = (docs / path).read_text("utf-8").partition("\n")[0].lstrip("# ")
        lines.append(f"- [{title}]({path})")
    return "\n".join([*lines, ""])


def _take_out_network(site: Path) -> None:
    """Replace the one script of another host, by which the search runs from files: a worker from a file is refused."""
    worker = next((site / "assets/javascripts/workers").glob("search.*.js"))
    code = json.dumps(worker.read_text("utf-8")).replace("</", "<\\/")
    (site / "assets/javascripts/worker.js").write_text(
        "if (location.protocol === 'file:') {\n"
        f"  const code = {code};\n"
        "  const Native = window.Worker;\n"
        "  window.Worker = function () {\n"
        "    return new Native(URL.createObjectURL(new Blob([code], { type: 'text/javascript' })));\n"
        "  };\n}\n",
        encoding="utf-8",
    )
    for page in site.rglob("*.html"):
        text = page.read_text("utf-8")
        if _SHIM in text:
            up = "../" * (len(page.relative_to(site).parts) - 1)
            page.write_text(text.replace(_SHIM, f"{up}assets/javascripts/worker.js"), encoding="utf-8")


class _Page(HTMLParser):
    """The ids of a page, its links, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attrs if value}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        loaded = given.get("href") if tag == "link" and given.get("rel") in ("stylesheet", "icon") else given.get("src")
        if loaded and not loaded.startswith("data:"):
            self.loads.append(loaded)


def list_problems(site: Path) -> list[str]:
    """Return what is wrong with a built site, a line each."""
    pages = {path: _Page(path.read_text("utf-8")) for path in site.rglob("*.html") if path.name != "404.html"}
    problems = []
    for path, page in pages.items():
        where = path.relative_to(site)
        for link in [*page.links, *page.loads]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loads:
                    problems.append(f"{where} loads {link}")
                continue
            aim = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            aim = aim / "index.html" if aim.is_dir() else aim
            if not aim.exists():
                problems.append(f"{where} leads to {link}, which is not there")
            elif parts.fragment and aim in pages and unquote(parts.fragment) not in {*pages[aim].ids, "__top"}:
                problems.append(f"{where} leads to {link}, which has no such section")
    return sorted(problems)


def list_unlisted(root: Path = ROOT) -> list[str]:
    """Return the documents that the navigation leaves out, and entries of the navigation without a document."""
    listed = {path for _, path in list_pages(root / "zensical.toml")}
    there = {str(path.relative_to(root / "docs")) for path in (root / "docs").rglob("*.md")} | set(OUTSIDE)
    return sorted(listed ^ there)


def _read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.support.site", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--demo", type=Path, help="a recorded run whose pages are shown")
    parser.add_argument("target", type=Path, nargs="?", default=ROOT / "build/site")
    return parser.parse_args()


def main() -> int:
    given = _read_arguments()
    if unlisted := list_unlisted():
        print(f"Not in docs and the navigation alike: {', '.join(unlisted)}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        demo = given.demo or Path(folder) / "demo"
        if given.demo is None:
            subprocess.run([sys.executable, "-m", "collector.demo", str(demo)], check=True)
        try:
            build_site(demo.absolute(), given.target)
        except RuntimeError as error:
            print(error, file=sys.stderr)
            return 1
    print(f"{given.target / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
