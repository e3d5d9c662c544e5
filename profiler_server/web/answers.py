"""Answers of the server: JSON and errors. Every error has the same description, sent as an HTML page or as the API's
JSON.

JSON: {"error": {"status", "kind", "message", "remedy", "detail"}}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, Response

from collector.format.schema import errors
from profiler_server.web.links import API

JsonError = dict[str, dict[str, str | int]]


@dataclass(frozen=True)
class ErrorView:
    """An error for a person: what happened (`title`), why, and what to do. `status` is the HTTP status, `kind` a
    word for programs. `detail` is raw text, which a page folds; "" without more to say."""

    status: int
    kind: str
    title: str
    cause: str
    remedy: str
    detail: str = ""

    def to_json(self) -> JsonError:
        return {
            "error": {
                "status": self.status,
                "kind": self.kind,
                "message": self.cause,
                "remedy": self.remedy,
                "detail": self.detail,
            }
        }


class BadQueryError(errors.UsageError):
    """The server rejects a query, for example because of an unknown parameter or a value of the wrong kind."""


class NotInRunError(errors.RunNotFoundError):
    """An existing run does not have the requested page or rank."""


_OUT_OF_RANGE = (
    409,
    "table_broken",
    "A file of this run holds values out of range",
    "Its content is lost. If the run was copied here, copy that file again.",
)
# The nearest class in the error's ancestry decides: status, kind, title, remedy.
_DOMAIN: dict[type[Exception], tuple[int, str, str, str]] = {
    errors.RunNotFoundError: (
        404,
        "run_not_found",
        "No such run",
        "It may have been moved or deleted while it was shown. Go back to the list of runs.",
    ),
    errors.ClosedRunError: (404, "run_not_found", "This run may not be read here", "Go back to the list of runs."),
    errors.LinkedRunError: (
        409,
        "linked_run",
        "A link lies inside this run",
        "Links inside a run are not followed: what they lead to may be anybody's.",
    ),
    NotInRunError: (404, "not_in_run", "Not in this run", "The menu lists the pages and the ranks of this run."),
    errors.TableMissingError: (404, "table_missing", "Not collected", "The other pages of this run are not affected."),
    errors.NewerSchemaError: (
        409,
        "newer_schema",
        "Written by a newer Stepscope",
        "Upgrade with: pip install --upgrade stepscope",
    ),
    errors.TableBrokenError: (
        409,
        "table_broken",
        "A file of this run is damaged",
        "Its content is lost. If the run was copied here, copy that file again.",
    ),
    pa.ArrowException: _OUT_OF_RANGE,
    OverflowError: _OUT_OF_RANGE,
    MemoryError: _OUT_OF_RANGE,
    errors.UsageError: (
        400,
        "bad_request",
        "This cannot be shown",
        "Correct the address, or start from the list of runs.",
    ),
    errors.StepscopeError: (500, "failed", "This cannot be shown", "The message above names the file to look at."),
}
_STATUS: dict[int, tuple[str, str, str]] = {
    400: ("bad_request", "This address is not understood", "Correct it, or start from the list of runs."),
    401: (
        "token_missing",
        "This server asks for its token",
        "Open the link that the server printed when it started. If you have done so, the list of runs opens from here. "
        "A program sends the header `Authorization: Bearer TOKEN`.",
    ),
    403: ("forbidden", "This server does not do that", "Its settings say so; see `stepscope --help`."),
    404: ("not_found", "No such page", "Start from the list of runs."),
    405: ("method_not_allowed", "Wrong HTTP method", "This address only answers to another one."),
    408: ("too_slow", "This took too long to arrive", "Send it again."),
    409: ("not_now", "Not possible now", "The run's own page says in which state it is."),
    413: ("too_large", "This is too much", "Run `stepscope import` on the server's machine instead."),
    422: ("invalid_query", "A value in the address does not fit", "Correct the value that is named above."),
    503: ("busy", "The server is busy", "Wait a moment, then try again."),
    507: ("disk_full", "The disk is full", "Free some space below the base directory, then try again."),
}
_PLAIN = {"Not Found": "There is nothing at this address", "Method Not Allowed": "The method is not allowed here"}
"""Sentences for messages of the framework."""
_UNEXPECTED = "This is a fault in Stepscope, or a damaged file of the run. The log of the server has the details."


def describe_error(error: BaseException) -> ErrorView:
    """Return the description of any error; an unexpected one has status 500. The traceback is never part of it."""
    for kind in type(error).__mro__:
        if kind in _DOMAIN:
            status, name, title, remedy = _DOMAIN[kind]
            return ErrorView(status, name, title, _sentence(str(error)), remedy)
    if isinstance(error, HTTPException):
        return describe_status(error.status_code, str(error.detail))
    cause = _sentence(f"{type(error).__name__}: {error}")
    return ErrorView(500, "internal", "Something went wrong here", cause, _UNEXPECTED)


def describe_status(status: int, cause: str) -> ErrorView:
    kind, title, remedy = _STATUS.get(status, ("http_error", "This cannot be shown", "Start from the list of runs."))
    return ErrorView(status, kind, title, _sentence(_PLAIN.get(cause, cause)), remedy)


def _sentence(text: str) -> str:
    text = text.strip()
    return text if text.endswith((".", "!", "?")) else text + "."


def send_json(value: Any, status: int = 200) -> Response:
    """Return a response with `value` as JSON: dataclasses, mappings, sequences and numbers. NaN and infinity become
    null."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def refuse(path: str, status: int, cause: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return the answer to a request refused before routing: a JSON error for an API path, else a line of text."""
    if path.startswith(API):
        return JSONResponse(describe_status(status, cause).to_json(), status, headers)
    return PlainTextResponse(cause + "\n", status, headers)
