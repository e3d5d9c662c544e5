"""The installed version of Stepscope; "0+unknown" if its files are only on the path."""

from importlib.metadata import PackageNotFoundError, version


def read_version() -> str:
    try:
        return version("stepscope")
    except PackageNotFoundError:
        return "0+unknown"


__version__ = read_version()
