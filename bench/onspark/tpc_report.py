"""Runs of ``bench/tpc.py`` on several versions of Spark as one result, and as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final

import strips

#: The side that each run has.
PLAIN: Final = "plain, sorted"
_LAMELLA: Final = "lamella"
_TITLES: Final = {_LAMELLA: "Lamella", "delta": "Delta", "iceberg": "Iceberg", "plain": "not sorted"}
_NEAR: Final = 1.05


def merged(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the runs, and for each query and side the ratios to the plain tables of the same run."""
    ratios: dict[str, dict[str, dict[str, float]]] = {}
    for run in runs:
        for query, by_side in run["queries"].items():
            plain = by_side[PLAIN]
            for side, times in by_side.items():
                if side != PLAIN:
                    of_side = {kind: round(ms / max(1, plain[kind]), 3) for kind, ms in times.items()}
                    ratios.setdefault(query, {})[side] = of_side
    blocks: dict[str, Any] = next((run["blocks"] for run in runs if "blocks" in run), {})
    return {"runs": list(runs), "ratios": ratios, "blocks": blocks}


def markdown(found: Mapping[str, Any]) -> str:
    """Return what was measured, a summary, and a line for each query."""
    return "\n\n".join([_runs(found), "\n".join(_summary(found)), "\n".join(_queries(found))])


def _runs(found: Mapping[str, Any]) -> str:
    first = found["runs"][0]
    said = [f"Scale {first['scale']:g}, at most {first['block_rows']:,} rows a block, {first['rounds']} rounds."]
    for run in found["runs"]:
        sides = [_TITLES[side] for side in run["seconds_to_make"] if side in _TITLES]
        said.append(f"{' and '.join(sides)} on Spark {run['spark']}, load {run['load']:g} when it began.")
    return " ".join(said)


def _sides(found: Mapping[str, Any]) -> list[str]:
    measured = {side for by_side in found["ratios"].values() for side in by_side}
    return [side for side in _TITLES if side in measured]


def _can_skip(found: Mapping[str, Any], query: str) -> bool:
    each = found["blocks"].get(query)
    return each is not None and each["needed"] < each["total"]


def _summary(found: Mapping[str, Any]) -> list[str]:
    """Return the geometric means of ratios, and on how many queries Lamella is ahead of each other side."""
    sides, ratios = _sides(found), found["ratios"]
    peers = [PLAIN, *(side for side in sides if side != _LAMELLA)]
    titles = [f"{_TITLES[side]}: planning, total, processor" for side in sides]
    ahead = [f"ahead of {_TITLES.get(side, side)}" for side in peers]
    lines = [
        f"| | queries | {' | '.join([*titles, *ahead, 'within 5 % of plain, or ahead'])} |",
        f"|---|{'--:|' * (len(titles) + len(ahead) + 2)}",
    ]
    for benchmark, title in (("tpch", "TPC-H"), ("tpcds", "TPC-DS")):
        for skips in (True, False):
            names = [name for name in ratios if name.split()[0] == benchmark and _can_skip(found, name) == skips]
            if not names:
                continue
            cells = [
                ", ".join(
                    f"{statistics.geometric_mean(ratios[name][side][kind] for name in names):.2f}"
                    for kind in ("planning_ms", "total_ms", "total_cpu_ms")
                )
                for side in sides
            ]
            totals = [{side: ratios[name][side]["total_ms"] for side in sides} for name in names]
            cells += [f"{sum(each[_LAMELLA] < each.get(side, 1) for each in totals)}" for side in peers]
            cells.append(f"{sum(each[_LAMELLA] <= _NEAR for each in totals)}")
            lines.append(f"| {title}, {'can' if skips else 'cannot'} skip | {len(names)} | {' | '.join(cells)} |")
    return lines


def picture(found: Mapping[str, Any]) -> str:
    """Return a picture of the total times of all queries, as multiples of the plain tables'."""
    sides = [side for side in _sides(found) if side != "plain"]
    rows = []
    for benchmark, title in (("tpch", "TPC-H"), ("tpcds", "TPC-DS")):
        for skips in (True, False):
            names = [name for name in found["ratios"] if name.split()[0] == benchmark]
            values: dict[str, Sequence[float]] = {
                _TITLES[side]: [
                    found["ratios"][name][side]["total_ms"] for name in names if _can_skip(found, name) == skips
                ]
                for side in sides
            }
            if all(values.values()):
                middle = {title: statistics.geometric_mean(each) for title, each in values.items()}
                rows.append(strips.Row(f"{title}, {'can' if skips else 'cannot'} skip", values, middle))
    scale = found["runs"][0]["scale"]
    title = f"Time of each query of TPC-H and TPC-DS at scale {scale:g}, beside plain Parquet on the same Spark"
    axis = "times as long as on plain Parquet tables; the lines are geometric means"
    return strips.svg(title, rows, axis, even=1)


def _queries(found: Mapping[str, Any]) -> list[str]:
    sides, first = _sides(found), found["runs"][0]["queries"]
    titles = ["plain: planning, total", *(_TITLES[side] for side in sides), "blocks needed, read, all"]
    lines = [f"| query | {' | '.join(titles)} |", f"|---|{'--:|' * len(titles)}"]
    for query, by_side in found["ratios"].items():
        plain, blocks = first[query][PLAIN], found["blocks"].get(query)
        cells = [f"{plain['planning_ms']:,.0f}, {plain['total_ms']:,.0f} ms"]
        cells += [f"{by_side[side]['planning_ms']:.2f}, {by_side[side]['total_ms']:.2f}" for side in sides]
        cells.append("" if blocks is None else f"{blocks['needed']}, {blocks['read']}, {blocks['total']}")
        lines.append(f"| {query.replace('tpch', 'H').replace('tpcds', 'DS')} | {' | '.join(cells)} |")
    return lines
