"""The file that a trace is written to: it appears whole or not at all."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from collector.format.schema import writing
from collector.format.schema.errors import OutputError
from collector.views.trace_text import Sink


@contextmanager
def replacing(path: Path) -> Iterator[Sink]:
    """Give a file, compressed if the path ends in .gz, that takes the path's place when all was written.

    OutputError if it cannot be written; then nothing is there.
    """
    try:
        if not path.name or path.is_dir():
            raise IsADirectoryError(21, "it is a directory")
        with writing.replacing(path) as raw:
            if path.suffix == ".gz":
                # The name inside of the file is the one that unpacking gives it.
                with gzip.GzipFile(path.name, "wb", compresslevel=1, fileobj=raw) as packed:
                    yield packed
            else:
                yield raw
    except (OSError, ValueError) as error:
        if isinstance(error, ValueError) and "\0" not in str(path):
            raise
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else error
        raise OutputError(
            f"{path} cannot be written ({reason}); choose a path in a folder that you can write"
        ) from None
