"""Paths in variants, as Spark's ``variant_get`` reads them."""

from __future__ import annotations

import re
from typing import Final

#: The name of an object's member, or a position in an array.
Step = str | int

# Spark skips blanks in front of names and brackets; such paths are not read here.
_STEP: Final = re.compile(
    r"""\.([^.\[\s][^.\[]*)|\['([^'?\s][^'?]*)'\]|\["([^"?\s][^"?]*)"\]|\[(0|[1-9][0-9]{0,8})\]"""
)
_WORD: Final = re.compile(r"[\w-]+")


def variant_steps(path: str) -> tuple[Step, ...] | None:
    """Returns the steps of a path, none for ``$``; None for text that is not a path, or one that is not read here."""
    if not path.startswith("$"):
        return None
    steps: list[Step] = []
    at = 1
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            return None
        word, single, double, index = found.groups()
        steps.append(int(index) if index is not None else word or single or double)
        at = found.end()
    return tuple(steps)


def path_text(steps: tuple[Step, ...]) -> str:
    """Returns the usual text of a path; names must have come from :func:`variant_steps`."""
    return "$" + "".join(map(_spelled, steps))


def _spelled(step: Step) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if _WORD.fullmatch(step):
        return f".{step}"
    return f"""["{step}"]""" if "'" in step else f"['{step}']"
