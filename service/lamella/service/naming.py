"""Names of namespaces and tables: what may stand in a URL path and in ``FROM catalog.namespace.table`` as it is.

A namespace may have levels (``sales.eu``), so ``sales.eu.orders`` is table ``orders`` in namespace ``sales.eu``;
levels are part of the name and nothing more. A table's name has none.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from lamella.snapshot.errors import InvalidRequest

MAX_NAME_LENGTH: Final = 128

#: No leading dash: names stand in command lines.
_PART: Final = r"[A-Za-z0-9_][A-Za-z0-9_-]*"
_PATTERNS: Final = {"namespace": re.compile(rf"{_PART}(?:\.{_PART})*"), "table": re.compile(_PART)}
_RULES: Final = {
    "namespace": "letters, digits, '_' and '-' (not first) are allowed, and single dots between its levels",
    "table": "letters, digits, '_' and '-' (not first) are allowed",
}


def check_name(kind: Literal["namespace", "table"], name: str) -> str:
    """Return ``name``. Names are case-sensitive.

    Raises:
        InvalidRequest: empty, too long, or with other characters.
    """
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidRequest(
            f"a {kind} name has at most {MAX_NAME_LENGTH} characters, not {len(name)}", **{kind: name[:MAX_NAME_LENGTH]}
        )
    if _PATTERNS[kind].fullmatch(name) is None:
        raise InvalidRequest(f"{name!r} is not a {kind} name: {_RULES[kind]}", **{kind: name})
    return name
