"""Receiving of uploads: the files of a multipart body are written as they arrive, so that large files need no more
memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from collector.format.schema.errors import UsageError
from collector.traces.reading import describe_suffixes, is_trace_name
from profiler_server.store.traces import clean_file_name

FILE_LIMIT = 10_000
_HEADER_LIMIT = 8192


class TooLargeError(UsageError):
    """An upload exceeds the limit of the server."""


class Receiver:
    """A receiver of one multipart body in pieces. Every section with a file name becomes a file below `folder`."""

    def __init__(self, folder: Path, boundary: bytes, limit_bytes: int) -> None:
        self.files: list[Path] = []
        self._folder, self._limit, self._taken = folder, limit_bytes, 0
        self._header = bytearray()
        self._headers: dict[bytes, bytes] = {}
        self._field = b""
        self._open: BinaryIO | None = None
        self._parser = self._build_parser(boundary)

    def _build_parser(self, boundary: bytes) -> MultipartParser:
        try:
            return MultipartParser(
                boundary,
                {
                    "on_part_begin": self._begin,
                    "on_header_field": self._add_field,
                    "on_header_value": self._add_value,
                    "on_header_end": self._end_header,
                    "on_headers_finished": self._open_file,
                    "on_part_data": self._write,
                    "on_part_end": self._end,
                },
            )
        except FormParserError as error:  # the boundary is too long
            raise UsageError(f"the upload cannot be read: {error}") from None

    def take(self, piece: bytes) -> None:
        """Take one piece. Raises TooLargeError, UsageError for a body that is not multipart, or OSError of the disk."""
        self._taken += len(piece)
        if self._taken > self._limit:
            raise TooLargeError(f"more than {self._limit >> 20:,} MiB was sent; import the file on the server instead")
        try:
            self._parser.write(piece)
        except FormParserError as error:
            raise UsageError(f"the upload cannot be read: {error}") from None

    def finish(self) -> tuple[Path, ...]:
        """Return the files in order of arrival. Raises UsageError if no file arrived, or if the body was cut."""
        self._parser.finalize()
        if self._open is not None:
            raise UsageError("the upload broke off; send it again")
        if not self.files:
            raise UsageError(f"no file was sent; choose a trace ({describe_suffixes()})")
        return tuple(self.files)

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _begin(self) -> None:
        self._headers, self._field = {}, b""
        self._header.clear()

    def _add_field(self, data: bytes, start: int, end: int) -> None:
        self._field += data[start:end]
        self._refuse_long(len(self._field))

    def _add_value(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]
        self._refuse_long(len(self._header))

    def _refuse_long(self, length: int) -> None:
        if length > _HEADER_LIMIT:
            raise UsageError("the upload has a header that is too long")

    def _end_header(self) -> None:
        self._headers[self._field.lower()] = bytes(self._header)
        self._field = b""
        self._header.clear()

    def _open_file(self) -> None:
        _, options = parse_options_header(self._headers.get(b"content-disposition", b""))
        given = options.get(b"filename")
        if given is None:
            return
        if len(self.files) >= FILE_LIMIT:
            raise UsageError(f"more than {FILE_LIMIT:,} files were sent")
        # Each file has a folder of its own, so that two files with one name do not collide.
        path = self._folder / str(len(self.files)) / clean_name(given.decode("utf-8", "replace"))
        path.parent.mkdir()
        self._open = path.open("xb")
        self.files.append(path)

    def _write(self, data: bytes, start: int, end: int) -> None:
        if self._open is not None:
            self._open.write(data[start:end])

    def _end(self) -> None:
        self.close()


def clean_name(given: str) -> str:
    """Return a safe file name. Raises UsageError for a name that no trace has."""
    name = given.replace("\\", "/").rsplit("/", 1)[-1]
    if not is_trace_name(name):
        raise UsageError(f"{name[:80]!r} is not a trace's name; send {describe_suffixes()}")
    return clean_file_name(name)


def find_boundary(content_type: str) -> bytes:
    kind, options = parse_options_header(content_type)
    if kind != b"multipart/form-data" or not options.get(b"boundary"):
        raise UsageError("send the files as multipart/form-data")
    return options[b"boundary"]


async def receive(pieces: AsyncIterator[bytes], receiver: Receiver) -> tuple[Path, ...]:
    """Pass a body to a receiver piece by piece, and return the received files.

    The writing happens on this thread, because pieces are small and arrive more slowly than the disk writes.
    """
    try:
        async for piece in pieces:
            if piece:
                receiver.take(piece)
        return receiver.finish()
    finally:
        receiver.close()
