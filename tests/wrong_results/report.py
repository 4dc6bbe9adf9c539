"""The table of what everyone answers, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wrong_results.case import Case, Query
from wrong_results.engines import Answer

Answers = Mapping[str, Sequence[Answer]]

_CANNOT = "n/a"
_INTRODUCTION = f"""\
# Wrong results

Parquet files from real and from broken writers, with queries that return wrong results according to public bug
reports. Every cell is the number of rows that an engine finds; **rows** is the correct number, which is computed from
the values and not by an engine. Lamella must be right in every line. The other engines are tested with their default
settings.

`tests/wrong_results` creates the files, runs the queries on every engine, checks Lamella, and compares this page with
the results. `make wrong-results` writes the page again.

Not included are errors that no reader can detect without reading all values: wrong statistics or indexes that agree
with each other and come from a writer without known bugs, such as the right bounds on the wrong pages. Registering with
`verify` computes the statistics of blocks from their values.

| cell | meaning |
|---|---|
| 1 | the correct rows |
| **0 ✗** | rows lost or added by skipping: without skipping the same engine is right |
| 0 ≠ | other rows, also without filter push-down: the engine has different semantics (pyarrow compares NaN as \
IEEE 754 does), or trusts the file's metadata elsewhere |
| error | the engine refuses the file or the condition |
| refused | Lamella returns an error rather than risk a wrong answer |
| {_CANNOT} | the query cannot be expressed in the engine |
"""


def page(families: Mapping[str, Sequence[Case]], answers: Mapping[str, Answers], versions: Mapping[str, str]) -> str:
    """The whole page; ``answers`` by case id, then by engine in the order of the columns."""
    parts = [_INTRODUCTION]
    parts.append("Versions: " + ", ".join(f"{name} {version}" for name, version in versions.items()) + ".\n")
    parts.append(_summary(families, answers))
    for family, cases in families.items():
        parts.append(f"## {family}\n")
        parts += [_section(case, answers[case.id]) for case in cases]
    return "\n".join(parts)


def _summary(families: Mapping[str, Sequence[Case]], answers: Mapping[str, Answers]) -> str:
    everything = [case for cases in families.values() for case in cases]
    names = list(next(iter(answers.values())))
    lines = ["| | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for label, test in (("queries answered right", _is_right), ("rows lost or invented by skipping", _is_wrong)):
        cells = []
        for name in names:
            pairs = [
                (case.truth(query), answer)
                for case in everything
                for query, answer in zip(case.queries, answers[case.id][name], strict=True)
            ]
            cells.append(f"{sum(test(truth, answer) for truth, answer in pairs)} of {len(pairs)}")
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _is_right(truth: Sequence[int], answer: Answer) -> bool:
    return answer.ids is not None and list(answer.ids) == list(truth)


def _is_wrong(truth: Sequence[int], answer: Answer) -> bool:
    return answer.ids is not None and not _is_right(truth, answer) and answer.unpruned != answer.ids


def _section(case: Case, answers: Answers) -> str:
    lines = [f"**`{case.id}`**: {case.title}.  \nSource: {case.source}.", ""]
    lines.append("| query | rows | " + " | ".join(answers) + " |")
    lines.append("|---|---|" + "---|" * len(answers))
    for at, query in enumerate(case.queries):
        truth = case.truth(query)
        cells = [_cell(truth, given[at]) for given in answers.values()]
        lines.append(f"| {_text(query)} | {len(truth)} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(truth: Sequence[int], answer: Answer) -> str:
    if answer.error is not None:
        return answer.error
    if answer.ids is None:
        return _CANNOT
    if list(answer.ids) == list(truth):
        return str(len(answer.ids))
    if answer.unpruned == answer.ids:
        return f"{len(answer.ids)} ≠"
    return f"**{len(answer.ids)} ✗**"


def _text(query: Query) -> str:
    shown = "".join(c if c.isprintable() and ord(c) < 0xFFF0 else f"\\U{ord(c):08X}" for c in query.sql)
    shown = shown.replace("a" * 70, "a…a").replace("|", "\\|")
    return f"`{shown}`"
