"""Results of several runs in one page: each table is of one run, and says of which.

A table is what one run found for one size (parts that have sizes) or for a whole part. Tables are taken as they are; no
cell, and no ratio, is ever made of two runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

#: Parts with one table per number of blocks; every other part is one table.
BY_SIZE: Final = ("prune", "http", "cold")
#: Members of a result besides its parts.
_ABOUT: Final = ("machine", "runs", "figures")

Table = dict[str, Any]


def runs(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Where, with which options and at which commit each run was made; the first one is run 1."""
    found: list[dict[str, Any]] = results["runs"] if "runs" in results else [results["machine"]]
    return found


def run_of(table: Table) -> int:
    """The number of the run that a table is of."""
    return int(table.get("run", 1))


def merged(several: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One result with the tables of several, which may be merged ones themselves.

    Where two have the same table (a part, a size) the later one stays, whole. Runs of which no table is left are not
    named. Figures are left out: they follow from the tables.
    """
    tables: dict[tuple[str, str], Table] = {}
    machines: list[dict[str, Any]] = []
    for results in several:
        for key, table in _tables(results):
            tables[key] = {**table, "run": run_of(table) + len(machines)}
        machines += runs(results)
    left = sorted({run_of(table) for table in tables.values()})
    found: dict[str, Any] = {"runs": [machines[number - 1] for number in left]}
    for (part, size), table in sorted(tables.items(), key=lambda each: int(each[0][1] or 0)):
        table["run"] = left.index(run_of(table)) + 1
        if part in BY_SIZE:
            found.setdefault(part, {})[size] = table
        else:
            found[part] = table
    return found


def _tables(results: dict[str, Any]) -> Iterator[tuple[tuple[str, str], Table]]:
    for part, found in results.items():
        if part in BY_SIZE:
            for size, table in found.items():
                yield (part, size), table
        elif part not in _ABOUT:
            yield (part, ""), found
