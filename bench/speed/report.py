"""Results of a run, or of several merged: text to print, and what ``docs/performance-figures.md`` shows of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from page_part import replace_part

from speed import over_http, plot
from speed.figures import Figure, figures
from speed.merging import run_of, runs
from speed.questions import NAMES

PREDICATES: Final = NAMES


def text(results: dict[str, Any]) -> str:
    """The figures, one a line, with goals and whether they were reached."""
    lines = ["", "figures, each of one run (ratios are of processor time where nothing else is said):"]
    several = len(runs(results)) > 1
    for each in figures(results):
        run = f"run {each.run}: " if several else ""
        lines.append(f"  {_mark(each):<8}{run}{each.name}: {each.value:g}{each.unit}{_goal(each)}")
    return "\n".join(lines)


def write_docs(results: dict[str, Any], docs: Path) -> None:
    """Replace the measured part of ``performance-figures.md``, and the plot."""
    replace_part(docs / "performance-figures.md", "make bench ARGS=--docs", markdown(results))
    plot.write(results, docs / "images" / "performance.svg")


def write_peers(results: dict[str, Any], docs: Path) -> None:
    """Replace the part of ``performance-figures.md`` that has the newest peers, without goals."""
    text = markdown(results).partition("### Goals")[0]
    replace_part(docs / "performance-figures.md", "make bench ARGS=--docs-peers", text)


def markdown(results: dict[str, Any]) -> str:
    """Return tables of all measurements; with several runs each table names its run."""
    several = len(runs(results)) > 1
    parts = [_about(results)]
    sizes = list(results.get("prune", {}).values())
    parts += [_prune_table(size, several) for size in sizes]
    if sizes:
        parts.append(_engines(sizes, several))
    parts += [_http_table(size, several) for size in results.get("http", {}).values()]
    if "register" in results:
        parts.append(_register_table(results["register"], several))
    header = ("figure", *(["run"] if several else []), "measured", "goal", "")
    rows = [
        (f.name, *([str(f.run)] if several else []), f"{f.value:g}{f.unit}", f.goal, _mark(f))
        for f in figures(results)
        if f.goal
    ]
    parts.append("### Goals\n\n" + _table(header, rows))
    return "\n".join(parts)


def _about(results: dict[str, Any]) -> str:
    """Where and how each run was made."""
    lines = []
    for machine in runs(results):
        options = machine.get("options")
        lines.append(
            f"commit {machine['commit']}, Python {machine['python']}, {machine['cpus']} cores ({machine['cpu']}), "
            f"load {machine['load_at_start']} when it began{f'; `{options}`' if options else ''}"
        )
    if len(lines) == 1:
        return f"Measured at {lines[0]}.\n"
    title = "Several runs, one after another. Each table and each ratio is of one of them.\n\n"
    return title + "\n".join(f"- run {number}: {line}" for number, line in enumerate(lines, 1)) + "\n"


def _section(title: str, table: dict[str, Any], several: bool, more: str = "") -> str:
    """A heading, and below it the run, where there are several, and what else there is to say."""
    said = " ".join(filter(None, [f"Run {run_of(table)}." if several else "", more]))
    return f"### {title}\n\n" + (f"{said}\n\n" if said else "")


def _prune_table(size: dict[str, Any], several: bool) -> str:
    rows = []
    for name, outcome in size["engines"].items():
        if "timings" not in outcome:
            rows.append((name, outcome["not_run"], *[""] * len(NAMES)))
            continue
        cells = []
        for predicate in NAMES:
            timing = outcome["timings"].get(predicate)
            remark = "*" if predicate in outcome.get("remarks", {}) else ""
            absent = "no" if predicate in outcome.get("not_offered", {}) else "not run"
            cells.append(absent if timing is None else f"{_ms(timing['cpu_ms'])} / {_ms(timing['p50_ms'])}{remark}")
        # a process that made its table may have less memory afterwards than before it opened it
        memory = f"{outcome['rss_mb']:,.0f} MB" if outcome["rss_mb"] >= 0 else "not measured"
        rows.append((name, f"{_ms(outcome['open_cpu_ms'])}, {memory}", *cells))
    may_match = "; ".join(f"{name} {count:,}" for name, count in size["may_match"].items())
    heading = f"{size['blocks']:,} blocks: milliseconds of the processor / of the clock"
    title = _section(heading, size, several, f"Blocks that may match: {may_match}.")
    notes = "\n".join(
        f"- {name}, {predicate}: {remark}"
        for name, outcome in size["engines"].items()
        for predicate, remark in {**outcome.get("remarks", {}), **outcome.get("not_offered", {})}.items()
        if remark != "counts only"
    )
    return title + _table(("engine", "open (cpu ms), memory", *NAMES), rows) + (f"\n{notes}\n" if notes else "")


def _engines(sizes: Sequence[dict[str, Any]], several: bool) -> str:
    """A list of the engines, each with its versions, by run where they differ, and what must be known of it."""
    found: dict[str, dict[str, list[int]]] = {}
    notes: dict[str, str] = {}
    for size in sizes:
        for name, outcome in size["engines"].items():
            said = ", ".join(f"{library} {number}" for library, number in outcome.get("versions", {}).items())
            if said:
                found.setdefault(name, {}).setdefault(said, []).append(run_of(size))
                notes[name] = outcome.get("note", "")
    lines = []
    for name, by_versions in found.items():
        versions = "; ".join(
            f"run {', '.join(map(str, sorted(set(numbers))))}: {said}" if several and len(by_versions) > 1 else said
            for said, numbers in by_versions.items()
        )
        lines.append(f"- {name}: {versions}." + (f" {notes[name][0].upper()}{notes[name][1:]}." if notes[name] else ""))
    return "### Engines\n\n" + "\n".join(lines) + "\n"


def _http_table(size: dict[str, Any], several: bool) -> str:
    rows = []
    for clients in ("1 clients", "16 clients"):
        for key, each in size[clients].items():
            name = key if key == over_http.EMPTY else f"narrow range (P1), {key}"
            rows.append(
                (
                    f"{name}, {clients.replace('1 clients', '1 client')}",
                    f"{each['p50_ms']:.2f}",
                    f"{each['p99_ms']:.2f}",
                    f"{each['cpu_ms']:.3f}",
                    f"{each['per_second']:,.0f}",
                )
            )
    for shape, predicates in size["predicates"].items():
        for name, each in predicates.items():
            times = (f"{each['p50_ms']:.2f}", f"{each['p99_ms']:.2f}", f"{each['cpu_ms']:.3f}")
            title = f"{name}, {shape}, 1 client, {each['answer_bytes']:,} bytes"
            rows.append((title, *times, f"{each['per_second']:,.0f}"))
    header = ("over HTTP", "p50 ms", "p99 ms", "processor ms", "requests/s")
    return _section(f"{size['blocks']:,} blocks over HTTP", size, several) + _table(header, rows)


def _register_table(register: dict[str, Any], several: bool) -> str:
    rows = []
    for name, each in register.items():
        if isinstance(each, dict):
            done = each.get("error") or f"{each['per_second']:,.0f}"
            rows.append((name, str(done), "" if "error" in each else f"{each['per_cpu_second']:,.0f}"))
    title = f"Registering {register['files']:,} Parquet files of {register['columns']} columns"
    return _section(title, register, several) + _table(("way", "files/s", "files per second of the processor"), rows)


def _table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "| --- |" + " --: |" * (len(header) - 1)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _ms(value: float) -> str:
    return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2 if value >= 1 else 3}f}"


def _goal(figure: Figure) -> str:
    return f"   (goal {figure.goal})" if figure.goal else ""


def _mark(figure: Figure) -> str:
    return "" if figure.reached is None else "reached" if figure.reached else "missed"
