"""The installed version of Stepscope ("0+unknown" if its files are only on the path), and where its documents lie."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

try:
    __version__ = version("stepscope")
except PackageNotFoundError:
    __version__ = "0+unknown"


def find_documents() -> Path:
    """Return the folder of the documents: in a wheel that of `stepscope`, in a clone `docs`."""
    root = Path(__file__).parents[1]
    return next((path for path in (root / "stepscope/docs", root / "docs") if path.is_dir()), root)
