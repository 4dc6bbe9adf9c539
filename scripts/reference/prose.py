"""Converts docstrings to Markdown."""

from __future__ import annotations

import inspect
import re

_ROLE = re.compile(r":\w+:`~?(?:[\w.]+\.)?(\w+)(?:\(\))?`")
_SECTION = re.compile(r"^(Raises|Returns|Args):$", re.MULTILINE)
#: Begins the example, which is the last part of a docstring.
_EXAMPLE = "\nExample:\n"


def markdown(docstring: str) -> str:
    """Return a docstring as Markdown: single code marks, roles as names, sections as lists, the example as code."""
    text, _, example = inspect.cleandoc(docstring).partition(_EXAMPLE)
    text = _ROLE.sub(r"`\1`", text).replace("``", "`")
    parts = _SECTION.split(text)
    done = [_flowing(parts[0])]
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        entries = re.split(r"\n(?=\S)", inspect.cleandoc("\n" + body.strip("\n")))
        listed = "\n".join(f"- {_flat(_named(entry))}" for entry in entries if entry.strip())
        done.append(f"{title}:\n\n{listed}")
    if example:
        done.append(f"```pycon\n{inspect.cleandoc(example)}\n```")
    return "\n\n".join(part.strip() for part in done if part.strip())


def _named(entry: str) -> str:
    """Return ``Name: text`` with the name as code."""
    return re.sub(r"^(\w+):", r"`\1`:", entry)


def _flowing(text: str) -> str:
    """Return paragraphs on one line each. Text after `::` is indented and unchanged."""
    paragraphs = re.split(r"\n\s*\n", text)
    shown = [p if p.startswith("    ") else _flat(p).replace("::", "") for p in paragraphs]
    return "\n\n".join(p for p in shown if p)


def _flat(text: str) -> str:
    return " ".join(text.split())


def cell(text: str) -> str:
    """Return text for a table cell."""
    return _flat(text).replace("|", "\\|")
