"""The answers to the questions of an assistant: parts of `report --json`, with its keys, for one run or two."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collector.format.finding import find_run
from collector.format.rank import read_step_rows
from collector.format.run import Run
from collector.format.schema.columns import Shown
from collector.format.schema.errors import OptionError, RunNotFoundError, read_or
from collector.format.steps import explain_left_out, select_steps
from profiler_server.analysis.compare.comparison import compare_ranks, summarize_comparison
from profiler_server.assistant.fitting import fit, list_some
from profiler_server.format import say_gain
from profiler_server.report import Reporting, build_report
from profiler_server.report.schema import pick, spell_out
from profiler_server.report.text import explain_silence, say_verdict
from profiler_server.store.catalog import Catalog
from profiler_server.store.redaction import Redactor
from profiler_server.store.run_query import PAGE_SIZE_LIMIT, RunQuery, select_runs

PATIENCE_S = 30.0
_ROWS, _QUERY_S = 10_000, 5.0
_OF_LATE = "rank phase own_ns others_ns behind_frac late_frac gain_ns causes"
_NOT_COMPARED = ("The run has one rank.", "The ranks could not be compared: they have too few steps in common.")
_NAME = Shown("run")


class Answers:
    """Answers on the runs below a base directory, each a JSON text of at most 2 KB. Several threads may ask.

    Every method raises StepscopeError, whose message `hide` makes fit to be shown. With `is_redacted`, answers hold no
    name that the user gave: runs are called `run 1`, `run 2` and so on, newest first.
    """

    def __init__(self, base_dir: Path, is_redacted: bool = False) -> None:
        self._catalog = Catalog(base_dir)
        self._redactor = Redactor() if is_redacted else None
        self._ids: dict[str, str] = {}

    def list_runs(self, words: str = "", skip: int = 0) -> str:
        if words and self._redactor is not None:
            raise OptionError("words cannot be searched, because names are redacted; use skip")
        listing = self._catalog.list_runs(PATIENCE_S)
        query = RunQuery(words, page=1 + skip // PAGE_SIZE_LIMIT, page_size=PAGE_SIZE_LIMIT)
        page = select_runs(listing.runs, query)
        first = (page.page - 1) * PAGE_SIZE_LIMIT
        entries: list[Any] = [None] * first
        for run in page.runs:
            names = {"script": run.manifest.script, "host": run.manifest.host} if self._redactor is None else {}
            head = run.headline
            figures = {
                "ranks": len(head.ranks),
                f"{head.noun}s": head.steps,
                "median_step_ns": head.step_p50_ns and round(head.step_p50_ns),
                "data_wait_frac": head.data_wait_frac,
                "change_frac_since_previous": run.delta_frac if run.delta_is_clear else None,
            }
            entries.append({"run": self._name(run.id), "state": run.shown_state, **names, **figures})
        found = {"runs": list_some(entries, skip, page.total), "cut": listing.cut, "not_read_yet": listing.unread}
        unreadable = [{"run": self._name(each.id), "reason": each.reason} for each in listing.unreadable]
        return self._fit({**found, "unreadable": list_some(unreadable) if unreadable else None})

    def overview(self, run: str, rank: int | None = None, rule: str = "") -> str:
        opened = self._open(run)
        report = self._report(opened, rank, run)
        if rule:
            return self._fit({**_cover(report, opened), "suggestion": _find_rule(report, rule)})
        asked = [entry for entry in report["suggestions"] if entry["severity"] != "info"]
        looks = [entry for entry in report["suggestions"] if entry["severity"] == "info"]
        outcome = report["outcome"] or {}
        return self._fit(
            {
                **_cover(report, opened),
                "verdict": say_verdict(opened, report["ranks"][0]["rank"] if report["ranks"] else None),
                "bound_by": report["bound_by"],
                "end": (report["end"] or {}).get("sentence"),
                "suggestions": list_some([_brief(entry, report) for entry in asked]),
                "why_no_suggestion": "" if asked else explain_silence(opened, rank),
                "worth_a_look": list_some([{"rule": each["rule"], "measured": each["measured"]} for each in looks]),
                "since_the_run_before": outcome.get("sentences"),
                **_list_unknown(report),
            }
        )

    def phases(self, run: str, rank: int | None = None) -> str:
        opened = self._open(run)
        report = self._report(opened, rank)
        one = _first(report)
        times = one["steps"]["duration_ns"] or {}
        kept = {name: times.get(name) for name in ("mean", "min", "p50", "p90", "p99", "max")}
        functions = (one["stacks"] or {}).get("phases", ())
        return self._fit(
            {
                **_cover(report, opened),
                "step_duration_ns": kept,
                "percentiles_missing": one["steps"]["percentiles_missing"],
                "phases_of_the_mean_step": [phase for phase in one["phases"] if phase["mean_ns"]],
                "most_seen_function": [_name_function(part) for part in functions if part["functions"]],
                "slow_steps": list_some(one["outliers"]),
                "interruptions": list_some(one["interruptions"]),
                "start_up_ns": {
                    part["cause"]: part["duration_ns"] for part in (one.get("start_up") or {}).get("parts", ())
                },
                **_list_unknown(report),
            }
        )

    def operators(self, run: str, rank: int | None = None, skip: int = 0) -> str:
        opened = self._open(run)
        report = self._report(opened, rank)
        one = _first(report)
        measure = "device_self_ns" if any(row["device_self_ns"] for row in one["operators"]) else "self_ns"
        rows = sorted(one["operators"], key=lambda row: -row[measure])
        names = ("name", "type", "count", "self_ns", "device_self_ns")
        manifest = opened.read_rank(one["rank"]).manifest
        windows = [f"{window.first_step}-{window.last_step}" for window in manifest.windows]
        return self._fit(
            {
                **_cover(report, opened),
                "covers": f"totals of the detailed windows, steps {', '.join(windows) or 'all'}" if rows else "",
                "sorted_by": measure,
                "operators": list_some([{name: row[name] for name in names} for row in rows], skip),
                "kernels": list_some(one["kernels"], skip),
                "why_none": "" if rows else opened.read_rank(one["rank"]).status("operators").reason,
                "device": one["device"] and {key: one["device"][key] for key in ("utilization_frac", "idle_ns")},
            }
        )

    def data_pipeline(self, run: str, rank: int | None = None) -> str:
        opened = self._open(run)
        report = self._report(opened, rank)
        one = _first(report)
        functions = (one["stacks"] or {}).get("stages", ())
        return self._fit(
            {
                **_cover(report, opened),
                "data_wait": [phase for phase in one["phases"] if phase["name"] == "data_wait"],
                "loaders": list_some(one["loaders"]),
                "queues": list_some(one["queues"]),
                "stages_per_batch": list_some(one["stages"]),
                "most_seen_function": [_name_function(part) for part in functions if part["functions"]],
                "why_none": "" if one["stages"] else opened.read_rank(one["rank"]).status("stages").reason,
            }
        )

    def ranks(self, run: str, skip: int = 0) -> str:
        opened = self._open(run)
        report = build_report(opened, None, Reporting(ranks=()))
        found = report["judgement"] or {}
        blame, last = found.get("blame_ns") or {}, found.get("last_frac") or {}
        rows = [
            {"rank": int(each), "others_wait_for_it_ns": ns, "last_frac": last.get(each)} for each, ns in blame.items()
        ]
        rows.sort(key=lambda row: -row["others_wait_for_it_ns"])
        late = found.get("straggler") or {}
        what_if = report["what_if"] or {}
        return self._fit(
            {
                "run": self._name_run(opened),
                "world_size": report["run"]["world_size"],
                "ranks_read": found.get("ranks_read"),
                "covers": f"{found['steps']} steps that all ranks have" if found else "",
                "verdict": found.get("sentence") or _NOT_COMPARED[len(opened.ranks) > 1],
                "evidence": found.get("evidence"),
                "kind": found.get("verdict"),
                "culprits": found.get("culprits"),
                "latest_rank": {key: late.get(key) for key in _OF_LATE.split()},
                "gain_ns_per_step_if_mended": found.get("gain_ns"),
                "ranks": list_some(rows, skip),
                "slow_collective": (report["slow_collective"] or {}).get("sentence"),
                "what_if": {key: what_if.get(key) for key in ("slowdown", "waste_frac", "method")},
                "end": (report["end"] or {}).get("sentence"),
                "warnings": list_some(report["warnings"]),
            }
        )

    def compare(self, a: str, b: str, rank: int | None = None) -> str:
        runs = self._open(a), self._open(b)
        found = compare_ranks(runs[0].rank(rank), runs[1].rank(rank))
        parts = [part for part in found.phases if part.a_ns or part.b_ns]
        return self._fit(
            {
                "a": self._name_run(runs[0]),
                "b": self._name_run(runs[1]),
                "summary": summarize_comparison(found),
                "covers": f"{found.a_steps} and {found.b_steps} {found.noun}s, {found.average}",
                "step": _describe_difference(found.step),
                "phases": [_describe_difference(part) for part in parts],
                "operators": list_some([_describe_difference(part) for part in found.operators]),
                "operators_measure": found.measure,
                "operators_left_out": found.moved,
                "noise_is": "the half width of the 95 % interval within these two runs; between runs it is larger",
                "cautions": list_some(found.cautions),
            }
        )

    def sql(self, run: str, query: str) -> str:
        import duckdb

        from profiler_server.store import sql

        connection = sql.connect(self._open(run))
        try:
            sql.require_question(connection, query)
            with sql.time_limit(connection, _QUERY_S):
                connection.execute(query)
                columns = [column[0] for column in connection.description or ()]
                rows = connection.fetchmany(_ROWS + 1)
        except duckdb.InterruptException:
            raise OptionError(f"the query took longer than {_QUERY_S:g} s and was ended; ask for less") from None
        except duckdb.Error as error:
            raise OptionError(sql.explain(error, connection)) from None
        finally:
            connection.close()
        total = len(rows) if len(rows) <= _ROWS else f"more than {_ROWS}"
        return self._fit({"columns": columns, "rows": list_some([list(row) for row in rows], 0, total)})

    def hide(self, text: str) -> str:
        """Return a text without the paths of the runs; with their names as they are unless names are left out."""
        if self._redactor is None:
            return text
        for name, run_id in sorted(self._ids.items(), key=lambda entry: -len(entry[1])):
            text = text.replace(str(self._catalog.base_dir / run_id), name)
        return text.replace(str(self._catalog.base_dir), "the base directory")

    def _fit(self, answer: Mapping[str, Any]) -> str:
        return fit(answer, self.hide)

    def _open(self, name: str) -> Run:
        """Open a run by its id or name, or by what it is called here. Only runs below the base directory are found."""
        if self._redactor is None:
            return self._catalog.open(self._catalog.name_path(find_run(self._catalog.base_dir, name)))
        if name not in self._ids:
            for entry in self._catalog.list_runs(PATIENCE_S).runs:
                self._name(entry.id)
        if name not in self._ids:
            raise RunNotFoundError(f"There is no run {name!r}; list_runs names them")
        return Run(self._catalog.open(self._ids[name]).path, self._redactor)

    def _name(self, run_id: str) -> str:
        name = run_id if self._redactor is None else self._redactor.show(run_id, _NAME) or ""
        self._ids[name] = run_id
        return name

    def _name_run(self, run: Run) -> str:
        return self._name(self._catalog.name_path(run.path))

    def _report(self, run: Run, rank: int | None, since: str = "") -> dict[str, Any]:
        """Return the report on one rank, by default the first, with `run` as it is called here. With `since`, the name
        of the run, what became of the advice of the run before is reported, too.
        """
        chosen = run.rank(rank).rank if run.ranks else rank
        earlier = None
        if since and self._redactor is None:
            entry = self._catalog.list_runs(PATIENCE_S).find(self._catalog.name_path(run.path))
            earlier = self._catalog.open(entry.previous_id) if entry is not None and entry.previous_id else None
        how = Reporting(earlier=earlier, ranks=() if chosen is None else (chosen,))
        report = build_report(run, rank, how)
        return {**report, "run": {**report["run"], "name": self._name_run(run)}}


def _first(report: Mapping[str, Any]) -> dict[str, Any]:
    if not report["ranks"]:
        raise RunNotFoundError(f"{report['run']['name']} holds no rank yet")
    found: dict[str, Any] = report["ranks"][0]
    return found


def _cover(report: Mapping[str, Any], run: Run) -> dict[str, Any]:
    """Return which run, rank and steps the figures of an answer cover."""
    head = {"run": report["run"]["name"], "state": report["run"]["state"]}
    if not report["ranks"]:
        return {**head, "rank": "none yet"}
    steps, one = report["ranks"][0]["steps"], report["ranks"][0]
    mean = steps["duration_ns"] or {}
    rows = read_or(None, lambda: read_step_rows(run.read_rank(one["rank"])))
    covered = {
        "first": steps["first"],
        "last": steps["last"],
        "recorded": steps["count"],
        "in_the_mean": mean.get("count", 0),
        "left_out": explain_left_out(select_steps(rows.steps).left_out, rows.noun) if rows is not None else None,
    }
    of = f"{one['rank']} of {report['run']['world_size']}"
    return {**head, "rank": of, "trace": one["completeness"], "steps": covered, "mean_step_ns": mean.get("mean")}


def _brief(entry: Mapping[str, Any], report: Mapping[str, Any]) -> dict[str, Any]:
    times = report["ranks"][0]["steps"]["duration_ns"] or {}
    trial = report["tried"].get(entry["rule"]) or {}
    return {
        "rule": entry["rule"],
        "severity": entry["severity"],
        "title": entry["title"],
        "change": entry["fix"],
        "gain": say_gain(entry, times.get("mean")),
        "predicted_step_ns": entry["predicted_step_ns"],
        "least_step_ns": entry["least_step_ns"],
        "tried": trial.get("sentence"),
        "measured": entry["measured"],
    }


def _find_rule(report: Mapping[str, Any], rule: str) -> dict[str, Any]:
    found = next((entry for entry in report["suggestions"] if entry["rule"] == rule), None)
    if found is None:
        there = ", ".join(entry["rule"] for entry in report["suggestions"]) or "none"
        raise OptionError(f"there is no suggestion {rule[:80]!r} for this rank; there are: {there}")
    evidence = [each["text"] for each in found["evidence"]]
    return {
        **_brief(found, report),
        **{key: found[key] for key in ("threshold", "advice", "settings")},
        "evidence": evidence,
        "code": found["change"],
    }


def _list_unknown(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return what could not be judged or read, and how to come to know it."""
    rules = [{"rule": entry["rule"], "missing": entry["missing"], "how": entry["how"]} for entry in report["abstained"]]
    return {"not_judged": list_some(rules), "warnings": list_some(report["warnings"])}


def _name_function(part: Mapping[str, Any]) -> dict[str, Any]:
    top = part["functions"][0]
    file = str(top["file"]).rpartition("/")[2]
    return {
        "in": part["name"],
        "function": top["function"],
        "line": f"{file}:{top['line']}",
        "share_frac": top["share_frac"],
    }


def _describe_difference(part: Any) -> dict[str, Any]:
    found = spell_out(pick(part))
    kept = {key: found[key] for key in ("name", "a_ns", "b_ns", "change_ns", "noise_ns")}
    return {**kept, "meaning": part.meaning}
