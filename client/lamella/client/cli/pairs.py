"""``KEY=VALUE`` as it stands on a command line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click
import msgspec


def pairs_of(texts: Iterable[str], option: str, form: str = "KEY=VALUE") -> dict[str, str]:
    """Keys and values, each text one of them; raises BadParameter."""
    pairs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not (key and equals):
            raise click.BadParameter(f"{text!r} is not {form}", param_hint=option)
        pairs[key] = value
    return pairs


def values_of(texts: Iterable[str], option: str) -> dict[str, Any]:
    """``NAME=VALUE`` each; a value that is a JSON number or truth value is one, and else text."""
    return {name: _value(text) for name, text in pairs_of(texts, option, "NAME=VALUE").items()}


def _value(text: str) -> Any:
    try:
        read = msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, RecursionError):
        return text
    return read if isinstance(read, bool | int | float | str) else text
