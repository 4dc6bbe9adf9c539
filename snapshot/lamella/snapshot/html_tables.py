"""Values as HTML, for notebooks: tables of text, without scripts and without anything from another host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

#: Rows that are shown; further ones are counted.
MAX_ROWS: Final = 100
_MAX_CHARACTERS: Final = 200


def html_table(caption: str, headers: Sequence[str], rows: Sequence[Iterable[object]]) -> str:
    """Returns a table with a caption. All text is escaped, long text is cut, and numbers have separators.

    Only the first rows are shown; a last line counts the others.
    """
    head = "".join(f"<th>{escaped(header)}</th>" for header in headers)
    lines = ["".join(_cell(value) for value in row) for row in rows[:MAX_ROWS]]
    if len(rows) > MAX_ROWS:
        lines.append(f'<td colspan="{max(len(headers), 1)}">and {len(rows) - MAX_ROWS:,} more</td>')
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table><caption>{escaped(caption)}</caption><tr>{head}</tr>{body}</table>"


def html_facts(caption: str, facts: Iterable[tuple[str, object]]) -> str:
    """Returns a table of names and values; those that are None or empty are left out."""
    rows = "".join(
        f"<tr><th>{escaped(name)}</th>{_cell(value)}</tr>" for name, value in facts if value is not None and value != ""
    )
    return f"<table><caption>{escaped(caption)}</caption>{rows}</table>"


def escaped(value: object) -> str:
    """Returns the text of a value as HTML; long text is cut."""
    from html import escape  # only notebooks need it

    text = str(value)
    return escape(text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…")


def _cell(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f'<td style="text-align: right">{value:,}</td>'
    return f"<td>{escaped(value)}</td>"
