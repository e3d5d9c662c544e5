"""The URLs of the server. No other module makes URLs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import parse_qsl, quote, urlencode

API = "/api/v1"
QueryValue = str | int | float | bool | None


class Links:
    """URLs of pages, of the API and of static files. A query value of None is left out."""

    def __init__(self, static_version: Callable[[], str]) -> None:
        self._static_version = static_version

    def runs(self, **query: QueryValue) -> str:
        return "/" + encode_query(query)

    def page(self, run_id: str, slug: str = "", rank: int | None = None, **query: QueryValue) -> str:
        """Return the URL of a page of a run. The empty slug is Overall; without `rank`, the server chooses the first
        rank.
        """
        return f"/runs/{quote_id(run_id)}/{quote(slug)}{encode_query({'rank': rank, **query})}"

    def place(self, run_id: str, slug: str, rank: int | None, query: str) -> str:
        """Return the URL of a page of a run. `query` is a query string, with or without its question mark; `rank` None
        adds no rank.
        """
        fields: dict[str, QueryValue] = {"rank": rank, **dict(parse_qsl(query.lstrip("?")))}
        return f"/runs/{quote_id(run_id)}/{quote(slug)}{encode_query(fields)}"

    def compare(self, a: str | None = None, *others: str | None) -> str:
        """Return the URL that compares each of `others` with the run `a`."""
        given = [("a", a), *(("b", other) for other in others)]
        query = urlencode([(name, run_id) for name, run_id in given if run_id is not None])
        return "/compare" + (f"?{query}" if query else "")

    def history(self, run_id: str | None = None, **query: QueryValue) -> str:
        """Return the URL of the history that a run belongs to; by default that of the newest run."""
        return "/history" + encode_query({"run": run_id, **query})

    def api(self, run_id: str, *parts: str, **query: QueryValue) -> str:
        """Return the API URL of a run; `parts` are further segments of its path."""
        tail = "".join(f"/{quote(part, safe='')}" for part in parts)
        return f"{API}/runs/{quote_id(run_id)}{tail}{encode_query(query)}"

    def api_root(self, *parts: str, **query: QueryValue) -> str:
        return API + "".join(f"/{quote(part, safe='')}" for part in parts) + encode_query(query)

    def static(self, path: str) -> str:
        return f"/static/{self._static_version()}/{quote(path)}"


class KeptLinks(Links):
    """Links on pages of the current run. They keep the chosen rank and steps, unless other values are given."""

    def __init__(self, links: Links, run_id: str, rank: int | None, steps: str | None) -> None:
        super().__init__(links._static_version)
        self._run_id, self._rank, self._steps = run_id, rank, steps

    def page(self, run_id: str, slug: str = "", rank: int | None = None, **query: QueryValue) -> str:
        if run_id != self._run_id:
            return super().page(run_id, slug, rank, **query)
        kept = {"steps": self._steps, **query}
        return super().page(run_id, slug, self._rank if rank is None else rank, **kept)


def quote_id(run_id: str) -> str:
    """Return a run id quoted for a path: slashes stay, and all other characters that are special in a URL are quoted."""
    return quote(run_id, safe="/")


def encode_query(query: Mapping[str, QueryValue]) -> str:
    given = [(name, _to_text(value)) for name, value in query.items() if value is not None]
    return "?" + urlencode(given) if given else ""


def _to_text(value: QueryValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
