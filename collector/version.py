"""The installed version of Stepscope; "0+unknown" if its files are only on the path."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("stepscope")
except PackageNotFoundError:
    __version__ = "0+unknown"
