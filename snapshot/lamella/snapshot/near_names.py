"""Names that are spelled nearly like one that does not exist, for errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any, Final

import msgspec
from msgspec import inspect

from lamella.snapshot.errors import InvalidRequest

#: With more names none is looked for: comparing them takes 10 microseconds each.
MAX_NAMES: Final = 1_000
_MAX_CHARACTERS: Final = 128
#: Members of larger documents are not looked for.
_MAX_BYTES: Final = 1 << 20
#: How alike names must be, from 0 to 1.
_SIMILARITY: Final = 0.6


def near_name(wanted: str, known: Sequence[str], *, similarity: float = _SIMILARITY) -> str | None:
    """Returns the nearest of ``known`` names; None: none is near. Case does not count.

    ``known``: only names that the caller may see. ``similarity``: how alike they must be, from 0 to 1.
    """
    if len(known) > MAX_NAMES or len(wanted) > _MAX_CHARACTERS:
        return None
    by_lowered = {name.lower(): name for name in known}
    near = get_close_matches(wanted.lower(), by_lowered, 1, similarity)
    return by_lowered[near[0]] if near else None


def did_you_mean(wanted: str, known: Sequence[str]) -> dict[str, str]:
    """Returns the member ``did_you_mean`` of an error's details with the nearest name; empty if none is near.

    ``known`` as in :func:`near_name`.
    """
    near = near_name(wanted, known)
    return {} if near is None else {"did_you_mean": near}


_UNKNOWN_MEMBER: Final = re.compile(
    r"Object contains unknown field `(?P<member>.*?)`(?: - at `\$(?P<path>.*)`)?", re.DOTALL
)
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")


def near_member(error: msgspec.ValidationError, kind: Any, document: bytes | msgspec.Raw | Any) -> dict[str, str]:
    """Returns the member ``did_you_mean`` for an error about an unknown member of a JSON object; empty for other errors
    and if none is near.

    ``kind``: the type that the document should have. ``document``: JSON text, or the values decoded from it.
    """
    found = _UNKNOWN_MEMBER.fullmatch(str(error))
    if found is None:
        return {}
    if isinstance(document, bytes | msgspec.Raw):
        if len(bytes(document)) > _MAX_BYTES:
            return {}
        try:
            document = msgspec.json.decode(document)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return {}  # the error was found first; what follows is no JSON
    steps = [match[1] or match[2] for match in _STEP.finditer(found["path"] or "")]
    member = found["member"]
    for struct, value in _objects(inspect.type_info(kind), document, steps):
        if member in value:
            names = [field.encode_name for field in struct.fields]
            return did_you_mean(member, [name for name in names if name not in value])
    return {}


def require_known_members(kind: Any, document: bytes) -> None:
    """Raise InvalidRequest for a member that no type has at its place in ``document``, JSON text of type ``kind``.

    For types that also occur in manifests, where members of later releases must be ignored: in a request a misspelt
    member would have no effect, and nobody would notice.
    """
    waiting: list[tuple[inspect.Type, Any, str]] = [(inspect.type_info(kind), msgspec.json.decode(document), "$")]
    while waiting:  # without recursion: columns may be nested as deeply as JSON can be
        known, value, path = waiting.pop()
        if isinstance(known, inspect.Metadata):
            waiting.append((known.type, value, path))
        elif isinstance(known, inspect.UnionType):
            waiting += [(each, value, path) for each in known.types]
        elif isinstance(known, inspect.StructType) and isinstance(value, dict):
            if known.tag_field is None or value.get(known.tag_field) == known.tag:
                types = {field.encode_name: field.type for field in known.fields}
                member = next((name for name in value if name not in types and name != known.tag_field), None)
                if member is not None:
                    near = did_you_mean(member, [name for name in types if name not in value])
                    message = f"Object contains unknown field `{member}` at {path}"
                    raise InvalidRequest(message, path=path, **near)
                waiting += [(types[name], value[name], f"{path}.{name}") for name in value if name in types]
        elif isinstance(known, inspect.DictType) and isinstance(value, dict):
            waiting += [(known.value_type, each, f"{path}[...]") for each in value.values()]
        elif isinstance(known, inspect.ListType | inspect.VarTupleType) and isinstance(value, list):
            waiting += [(known.item_type, each, f"{path}[{number}]") for number, each in enumerate(value)]


def _objects(
    kind: inspect.Type, value: Any, steps: Sequence[str]
) -> Iterator[tuple[inspect.StructType, dict[str, Any]]]:
    """Yield the objects at a path with their types. The path does not say which value of a mapping it is about: all
    are yielded."""
    if isinstance(kind, inspect.Metadata):
        yield from _objects(kind.type, value, steps)
    elif isinstance(kind, inspect.UnionType):
        for each in kind.types:
            yield from _objects(each, value, steps)
    elif isinstance(kind, inspect.StructType) and isinstance(value, dict):
        if kind.tag_field is not None and value.get(kind.tag_field) != kind.tag:
            return
        if not steps:
            yield kind, value
        for field in kind.fields if steps else ():
            if field.encode_name == steps[0] and field.encode_name in value:
                yield from _objects(field.type, value[field.encode_name], steps[1:])
    elif isinstance(kind, inspect.DictType) and isinstance(value, dict) and steps:
        for each in value.values():
            yield from _objects(kind.value_type, each, steps[1:])
    elif isinstance(kind, inspect.ListType | inspect.VarTupleType) and isinstance(value, list | tuple):
        for each in value[int(steps[0]) :][:1] if steps and steps[0].isdigit() else ():
            yield from _objects(kind.item_type, each, steps[1:])
