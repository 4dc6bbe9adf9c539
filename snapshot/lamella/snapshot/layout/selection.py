"""Which of the files below a folder a URL stands for: hidden names, suffixes and globs (see ``Store.expand``)."""

from __future__ import annotations

import re
from typing import Final

#: What a data file below a folder is called.
SUFFIX: Final = ".parquet"

_MAGIC = re.compile(r"[*?\[]")


def has_magic(path: str) -> bool:
    """True when the path holds a glob character."""
    return _MAGIC.search(path) is not None


def is_hidden(name: str) -> bool:
    """Spark's rule for one part of a path; ``_part=1`` is a partition folder and therefore not hidden."""
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def is_data_file(below: str) -> bool:
    """True for a path, relative to the folder that was named, of a file that belongs to its data."""
    return below.endswith(SUFFIX) and not any(is_hidden(part) for part in below.split("/") if part)


def glob_root(path: str) -> str:
    """The longest folder of a glob without glob characters; it ends with a slash, or is empty."""
    parts = path.split("/")
    plain = next(i for i, part in enumerate(parts) if has_magic(part))
    return "/".join(parts[:plain]) + "/" if plain else ""


class Glob:
    """A glob over slash-separated paths."""

    def __init__(self, pattern: str) -> None:
        parts = [part for part in pattern.split("/") if part]
        self._matchers = [part if part == "**" else re.compile(_regex(part), re.DOTALL) for part in parts]
        self._may_hide = [part[0] in "._" for part in parts]

    def selects(self, path: str) -> bool:
        """True when the file matches, or is a data file below a folder that matches."""
        parts = [part for part in path.split("/") if part]
        return any(end == len(parts) or is_data_file("/".join(parts[end:])) for end in self._ends(parts))

    def _ends(self, parts: list[str]) -> set[int]:
        """How many leading parts the whole pattern can take up."""
        at = {0}
        for matcher, may_hide in zip(self._matchers, self._may_hide, strict=True):
            after: set[int] = set()
            for start in at:
                if isinstance(matcher, str):
                    after.add(start)
                    for end in range(start, len(parts)):
                        if is_hidden(parts[end]):
                            break
                        after.add(end + 1)
                elif start < len(parts) and (may_hide or not is_hidden(parts[start])):
                    after.update({start + 1} if matcher.fullmatch(parts[start]) else ())
            at = after
        return at


def _regex(part: str) -> str:
    out = []
    at = 0
    while at < len(part):
        char = part[at]
        at += 1
        if char == "*":
            out.append(".*")
        elif char == "?":
            out.append(".")
        elif char == "[":
            negated = part[at : at + 1] in ("!", "^")
            first = at + negated
            close = part.find("]", first + 1)
            if close < 0:
                out.append(re.escape(char))
                continue
            body = part[first:close].replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace("^", "\\^")
            body = re.sub(r"(&&|\|\||~~)", lambda m: "\\" + m.group()[0] + "\\" + m.group()[1], body)
            out.append(f"[{'^' if negated else ''}{body}]")
            at = close + 1
        else:
            out.append(re.escape(char))
    return "".join(out)
