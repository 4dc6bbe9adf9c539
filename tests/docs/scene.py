"""What each page needs before its blocks run, and how those of its blocks are checked that do not run by themselves."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import yaml

from docs.stage import Stage

SetUp = Callable[[Stage], None]
#: Raises when the text of a JSON, TOML or YAML block, or of one with output, is not what it should be.
Check = Callable[[Stage, str], object]


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one page. ``data``: a check for each JSON, TOML or YAML block; ``texts``: for each ``text`` one."""

    set_up: SetUp
    data: tuple[Check, ...] = ()
    texts: tuple[Check, ...] = ()
    #: The page's blocks use the Spark session.
    spark: bool = False
    #: `make soak` runs the page, and `make test` does not.
    soak: bool = False
    #: The page starts its service itself.
    starts_service: bool = False
    #: Settings of a service of the page's own, by a folder for what they name.
    settings: Callable[[Path], dict[str, str]] | None = None


SCENES: dict[str, Scene] = {}


def scene(page: str, **rules: Any) -> Callable[[SetUp], SetUp]:
    """Register what a page needs; the function makes it."""

    def register(set_up: SetUp) -> SetUp:
        assert page not in SCENES, page
        whole: dict[str, Any] = {name: tuple(rule) if isinstance(rule, list) else rule for name, rule in rules.items()}
        SCENES[page] = Scene(set_up=set_up, **whole)
        return set_up

    return register


def nothing(_stage: Stage) -> None:
    """A page whose blocks need nothing."""


def as_type(kind: Any) -> Check:
    """JSON that is a value of a wire type, with no member that the type does not have."""

    def check(_stage: Stage, text: str) -> None:
        value = msgspec.json.decode(text, type=kind)
        unknown = _unknown(json.loads(text), value)
        assert not unknown, unknown

    return check


def _unknown(given: Any, value: Any) -> list[str]:
    """Members of objects that are none of the structs that were read from them."""
    if isinstance(value, msgspec.Struct) and isinstance(given, dict):
        fields = {f.encode_name: getattr(value, f.name) for f in msgspec.structs.fields(value)}
        tag = value.__struct_config__.tag_field
        own = [name for name in given if name not in fields and name not in ("...", tag)]
        return own + [each for name in given if name in fields for each in _unknown(given[name], fields[name])]
    if isinstance(given, list) and isinstance(value, list | tuple):
        return [each for inner, read in zip(given, value, strict=True) for each in _unknown(inner, read)]
    if isinstance(given, dict) and isinstance(value, dict):
        return [
            each for inner, read in zip(given.values(), value.values(), strict=True) for each in _unknown(inner, read)
        ]
    return []


def parsed(language: str, text: str) -> Any:
    """The value of a JSON, TOML or YAML text; raises what its reader raises."""
    if language == "json":
        return json.loads(text)
    return tomllib.loads(text) if language == "toml" else list(yaml.safe_load_all(text))


def reads(_stage: Stage, _text: str) -> None:
    """A block that it is enough to parse."""


def drawing(_stage: Stage, text: str) -> None:
    """A block that only people read."""
    assert text.strip()
