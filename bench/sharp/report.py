"""The result as a table on the terminal, and as the page ``docs/sharpness.md``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from sharp.judge import GOAL, Tally
from sharp.lamella_planner import LamellaPlanner
from sharp.run import Line, Result

LAMELLA = LamellaPlanner.name


def show(result: Result, console: Console) -> None:
    """Print the tables of the page."""
    for title, rows in _tables(result):
        table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left")
        for index, head in enumerate(rows[0]):
            table.add_column(head, justify="left" if index == 0 else "right")
        for row in rows[1:]:
            table.add_row(*row)
        console.print(table)
    for sentence in result.self_check:
        console.print(f"self-check: {sentence}")


def page(result: Result, command: str) -> str:
    """The page in Markdown."""
    tables = dict(_tables(result))
    total = _total(result.lines, LAMELLA)
    peers = [name for name in _planners(result) if name != LAMELLA]
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    short = _short(result)
    parts = [
        _INTRODUCTION.format(
            command=command,
            scale=f"{result.options.scale:g}",
            blocks=result.options.blocks,
            filters=result.options.filters,
            versions=versions,
        ),
        _SUMMARY.format(
            filters=total.filters,
            pairs=total.blocks,
            lost=total.lost,
            wrong=total.wrong_all,
            decided=_percent(total.decided_share),
            goal=_percent(GOAL),
            pruned=_percent(total.pruned_share),
            every=_percent(total.all_share),
            decided_all=_percent(total.decided_all_share),
        ),
        _shortfalls(short),
        *(f"## {title}\n\n{_NOTES.get(title, '')}{_markdown(rows)}" for title, rows in tables.items()),
        "## Can this fail?\n\nThe judge is run on planners that are wrong on purpose, and the run stops when it does "
        "not notice:\n\n" + "\n".join(f"- {sentence}" for sentence in result.self_check),
    ]
    parts.append(_lost({name: _total(result.lines, name) for name in peers}))
    return "\n\n".join(part for part in parts if part) + "\n"


_INTRODUCTION = """# Sharpness

How many of the blocks that a filter does not need are skipped, compared with an oracle that reads every row and with
other planners on the same files. This page is written by

```
{command}
```

- **Files**: `lineitem` and `orders` of TPC-H at scale {scale}, cut into {blocks} Parquet files each by pyarrow with its
  default settings, once sorted by date ("clustered"), once in the generator's order; and a synthetic table `vals` of
  {blocks} files with two columns of each of 12 types, with nulls, NaN and blocks of one value.
- **Filters**: the conditions of the 22 TPC-H queries on one of these two tables alone, and {filters} random
  filters for each operator and table, on columns of every type, with constants that occur or are close to such values.
- **Truth**: DuckDB counts each block's matching rows in the projection of an aggregate over all rows in memory, where
  no statistics are used.
- **Decided by min and max**: blocks for which no row that obeys the exact minimum, maximum, null count and NaN count
  of each column satisfies the filter. Computed without Lamella's code: DuckDB evaluates the condition at its constants,
  their neighbours and at every bound (over a small domain: everywhere). Conditions on one column count together,
  conditions on different columns are independent. A footer has no count of NaN: "decided" assumes that a float
  column may have NaN.
- **Peers**: pyarrow (`ParquetFileFragment.split_by_row_group`), delta-rs (`DeltaTable.file_uris` of a table made over
  the files), pyiceberg (`plan_files` of a table with `add_files`). "-" is a filter that the planner cannot express.
- **Versions**: {versions}."""

_SUMMARY = """Over {filters:,} filters and {pairs:,} (block, filter) pairs, Lamella left out
**{lost} blocks with a match** and called **{wrong} blocks `ALL`** wrongly. Of the blocks that exact minima and maxima
rule out it pruned **{decided}** (goal: {goal}), of all blocks without a match {pruned}. Of the blocks whose every row
matches it proved {every} to be `ALL`; of those for which minima and maxima prove it, {decided_all}."""

_LOST = """## Blocks that others lose

Blocks with rows that match by Spark SQL's rules, but that a peer skipped:

{lost}

Spark takes NaN as greater than every number, so that `x > 5` is true for it, and a footer says nothing of NaN. By rules
where no comparison with NaN is true, a block lost for its NaN is no loss; to a Spark user it is."""

_QUERY_TITLE = "TPC-H, blocks kept by query"
_OPERATOR_TITLE = "Operators, pruned of what min and max decide"
_LAMELLA_TITLE = "Operators, Lamella in full"

_NOTES = {
    _QUERY_TITLE: 'Blocks kept. "match": blocks with a matching row. "decided": what min and max leave at best.\n\n',
    _OPERATOR_TITLE: "Random filters over all tables. In brackets: blocks lost, by Spark's rules.\n\n",
    _LAMELLA_TITLE: (
        'The same filters. "pruned": of the blocks without a match; "ALL": of the blocks whose every row matches; '
        '"decided": of those that min and max prove. "measured": statistics taken from the values, as Lamella\'s '
        "writers do, so that NaN is known.\n\n"
    ),
}


def _tables(result: Result) -> Iterable[tuple[str, list[list[str]]]]:
    planners = _planners(result)
    yield _QUERY_TITLE, _queries(result, planners)
    yield _OPERATOR_TITLE, _operators(result, planners)
    yield _LAMELLA_TITLE, _in_full(result)


def _queries(result: Result, planners: Sequence[str]) -> list[list[str]]:
    rows = [["query", "table", "blocks", "match", "decided", *planners]]
    for line in result.lines:
        if line.kind == "operator":
            continue
        ours = line.tallies[LAMELLA]
        cells = [_selected(line.tallies.get(name)) for name in planners]
        rows.append(
            [line.name, line.table, str(ours.blocks), str(ours.matching), str(ours.blocks - ours.decided), *cells]
        )
    return rows


def _operators(result: Result, planners: Sequence[str]) -> list[list[str]]:
    rows = [["operator", "decided pairs", *planners]]
    for name, lines in _by_operator(result).items():
        sums = {planner: _total(lines, planner) for planner in planners}
        rows.append([name, f"{sums[LAMELLA].decided:,}", *(_decided(tally) for tally in sums.values())])
    return rows


def _in_full(result: Result) -> list[list[str]]:
    head = ["operator", "pairs", "kept", "match", "pruned", "decided", "ALL", "decided ALL", "measured: decided"]
    rows = [head]
    measured = _by_operator(result, measured=True)
    for name, lines in _by_operator(result).items():
        tally = _total(lines, LAMELLA)
        rows.append(
            [
                name,
                f"{tally.blocks:,}",
                f"{tally.selected:,}",
                f"{tally.matching:,}",
                _percent(tally.pruned_share),
                _percent(tally.decided_share),
                _percent(tally.all_share),
                _percent(tally.decided_all_share),
                _percent(_total(measured.get(name, []), LAMELLA).decided_share),
            ]
        )
    return rows


def _by_operator(result: Result, *, measured: bool = False) -> dict[str, list[Line]]:
    found: dict[str, list[Line]] = {}
    for line in result.lines:
        if line.kind == "operator" and line.table.endswith("measured") is measured:
            found.setdefault(line.name, []).append(line)
    return found


def _lost(peers: dict[str, Tally]) -> str:
    lost = [
        f"- {name}: {tally.lost}, of which {tally.lost_nan} hold NaN in a column of the filter"
        for name, tally in peers.items()
        if tally.lost
    ]
    return _LOST.format(lost="\n".join(lost)) if lost else ""


def totals(result: Result) -> dict[str, Tally]:
    """Lamella's counts by operator (footers and measured apart), and those of the queries."""
    found = {name: _total(lines, LAMELLA) for name, lines in _by_operator(result).items()}
    for name, lines in _by_operator(result, measured=True).items():
        found[f"{name}, measured"] = _total(lines, LAMELLA)
    found["TPC-H"] = _total([line for line in result.lines if line.kind != "operator"], LAMELLA)
    return found


def _short(result: Result) -> dict[str, tuple[float, str]]:
    """Operators below the goal, with the filter that fell shortest."""
    found = {}
    for name, tally in totals(result).items():
        share = tally.decided_share
        if share is not None and share < GOAL:
            worst = [line.worst for line in result.lines if line.worst and _is_in(line, name)]
            found[name] = share, worst[0] if worst else ""
    return found


def _is_in(line: Line, name: str) -> bool:
    if name == "TPC-H":
        return line.kind != "operator"
    measured = line.table.endswith(", measured")
    return line.kind == "operator" and name == (f"{line.name}, measured" if measured else line.name)


def _shortfalls(short: dict[str, tuple[float, str]]) -> str:
    if not short:
        return "No operator is below the goal."
    lines = [f"- {name}: {_percent(share)}, as in `{worst}`" for name, (share, worst) in short.items()]
    return "Below the goal:\n\n" + "\n".join(lines)


def _planners(result: Result) -> list[str]:
    return list(dict.fromkeys(name for line in result.lines for name in line.tallies))


def _total(lines: Iterable[Line], planner: str) -> Tally:
    total = Tally()
    for line in lines:
        if planner in line.tallies:
            total.merge(line.tallies[planner])
    return total


def _selected(tally: Tally | None) -> str:
    if tally is None or tally.refused:
        return "-"
    return f"{tally.selected} ({tally.lost} lost)" if tally.lost else str(tally.selected)


def _decided(tally: Tally) -> str:
    if tally.filters == tally.refused:
        return "-"
    lost = f" ({tally.lost})" if tally.lost else ""
    return _percent(tally.decided_share) + lost


def _percent(share: float | None) -> str:
    if share is None:
        return ""
    return "100 %" if share == 1 else f"{int(share * 1000) / 10:.1f} %"  # cut, never rounded up to the goal


def _markdown(rows: list[list[str]]) -> str:
    head, *body = rows
    lines = [head, ["---", *("--:" for _ in head[1:])], *body]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
