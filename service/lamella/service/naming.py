"""Names of namespaces, tables, tags, schedules and keys: what may stand in a path, and in ``FROM catalog.ns.table``.

A namespace may have levels (``sales.eu``), so ``sales.eu.orders`` is table ``orders`` in namespace ``sales.eu``;
levels are part of the name and nothing more. A table's name has none. Where a snapshot is asked for, a UUID is an id
and anything else a tag, so no tag is a UUID.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.ids import canonical_id

Kind = Literal["namespace", "table", "tag", "schedule", "key"]

MAX_NAME_LENGTH: Final = 128

#: No leading dash: names stand in command lines.
_PART: Final = r"[A-Za-z0-9_][A-Za-z0-9_-]*"
_PATTERNS: Final[dict[Kind, re.Pattern[str]]] = {
    "namespace": re.compile(rf"{_PART}(?:\.{_PART})*"),
    "table": re.compile(_PART),
    "tag": re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*"),
    "schedule": re.compile(_PART),
    "key": re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*"),
}
_RULES: Final[dict[Kind, str]] = {
    "namespace": "letters, digits, '_' and '-' (not first) are allowed, and single dots between its levels",
    "table": "letters, digits, '_' and '-' (not first) are allowed",
    "tag": "letters, digits, '_', '-' and '.' (the last two not first) are allowed, and it is no UUID",
    "schedule": "letters, digits, '_' and '-' (not first) are allowed",
    "key": "letters, digits, '_', '-' and '.' (the last two not first) are allowed",
}


def check_name(kind: Kind, name: str) -> str:
    """Return ``name``. Names are case-sensitive.

    Raises:
        InvalidRequest: empty, too long, or with other characters; for a tag, also a UUID in any spelling.
    """
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidRequest(
            f"a {kind} name has at most {MAX_NAME_LENGTH} characters, not {len(name)}", **{kind: name[:MAX_NAME_LENGTH]}
        )
    if _PATTERNS[kind].fullmatch(name) is None or (kind == "tag" and canonical_id(name) is not None):
        raise InvalidRequest(f"{name!r} is not a {kind} name: {_RULES[kind]}", **{kind: name})
    return name
