"""The version of Stepscope that is installed; "0+unknown" where its files were only put on the path."""

from importlib.metadata import PackageNotFoundError, version


def read_version() -> str:
    try:
        return version("stepscope")
    except PackageNotFoundError:
        return "0+unknown"


__version__ = read_version()
