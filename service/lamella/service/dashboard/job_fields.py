"""Form fields for the arguments of a job, made from the types of its kind, and arguments parsed from texts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import inspect

from lamella.service.dashboard import words
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.job_kinds import JobKind, RewriteArguments
from lamella.snapshot.wire import IndexOption

Shape = Literal["text", "whole", "number", "check", "choice", "filter", "pairs", "lines", "json"]

#: Names that addresses and forms of these pages use; an argument of the same name gets the prefix ``arg_``.
RESERVED: Final = frozenset({"kind", "table", "priority", "unique", "preview", "measure", "done", "csrf", "once"})
#: The argument without which a job is a dry run. No address can set it: the last step of the form asks for it.
EXECUTE: Final = "execute"
_NAMED: Final = re.compile(r"((?:``\w+``(?:, )?)+): ")
_NAME: Final = re.compile(r"``(\w+)``")
#: A size as users type it.
_MAX_DIGITS: Final = 30
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)([KMGT]?)(i?)B?", re.IGNORECASE)
_UNITS: Final = "KMGT"


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One field: an argument ``name``, called ``parameter`` in addresses and forms.

    ``type``: the type that msgspec checks. ``text``: the input; ``problem``: what is wrong with it, at the character
    ``problem_at`` if known. ``suggestions``: some possible values.
    """

    name: str
    parameter: str
    label: str
    help: str = ""
    shape: Shape = "text"
    type: Any = None
    choices: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()
    #: The value is several of them, with commas.
    many: bool = False
    required: bool = False
    advanced: bool = False
    text: str = ""
    problem: str = ""
    problem_at: int | None = None


def fields_of(kind: JobKind) -> tuple[Field, ...]:
    """Return the fields of a kind's form: required ones first, without :data:`EXECUTE`."""
    descriptions = _descriptions(kind.arguments)
    advanced = RewriteArguments.__struct_fields__ if issubclass(kind.arguments, RewriteArguments) else ()
    struct = inspect.type_info(kind.arguments)
    if not isinstance(struct, inspect.StructType):
        raise TypeError(f"the arguments of {kind.name} are not a struct")
    types = {field.name: field.type for field in msgspec.structs.fields(kind.arguments)}
    found = [
        _field(each, types[each.name], descriptions.get(each.name, ""), advanced=each.name in advanced)
        for each in struct.fields
        if each.name != EXECUTE
    ]
    return tuple(sorted(found, key=lambda field: not field.required))


def has_execute(kind: JobKind) -> bool:
    """Return whether a job of the kind is a dry run by default."""
    return EXECUTE in kind.arguments.__struct_fields__


def option_field(option: IndexOption) -> Field:
    """Return the field of an option of an index kind."""
    number: type[Any] = {"int": int, "float": float, "bool": bool}.get(option.type, str)
    shapes: dict[type[Any], Shape] = {int: "whole", float: "number", bool: "choice"}
    bounds = [f"{bound:,.10g}" for bound in (option.minimum, option.maximum) if bound is not None]
    ranged = f" {' to '.join(bounds)}." if len(bounds) == 2 else ""
    default = msgspec.json.encode(option.default).decode()
    return Field(
        name=option.name,
        parameter="opt_" + option.name,
        label=_label(option.name),
        help=f"{_sentence(option.text)}{ranged} Default: {default}.",
        shape=shapes.get(number, "text"),
        type=number,
        choices=("true", "false") if number is bool else (),
    )


def filled(fields: tuple[Field, ...], texts: Mapping[str, str]) -> tuple[tuple[Field, ...], dict[str, Any]]:
    """Return the fields with the input and its errors, and the values of the valid fields."""
    shown, values = [], {}
    for field in fields:
        text = texts.get(field.parameter, "").strip()
        problem = ""
        try:
            value = _value(field, text)
            if value is not None:
                values[field.name] = msgspec.convert(value, field.type)
            elif field.required:
                problem = "This field is required."
        except msgspec.ValidationError as error:
            problem = _sentence(str(error).partition(" - at `")[0].replace("`", ""))
        except InvalidRequest as error:
            problem = _sentence(error.message)
        shown.append(msgspec.structs.replace(field, text=text, problem=problem))
    return tuple(shown), values


def texts_of(kind: JobKind, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return arguments as parameters of the form's address."""
    return {
        field.parameter: _text(field, arguments[field.name]) for field in fields_of(kind) if field.name in arguments
    }


def with_problem(fields: tuple[Field, ...], name: str, problem: str, at: int | None = None) -> tuple[Field, ...] | None:
    """Return the fields with a problem at that field; None if there is no such field."""
    if name not in {field.name for field in fields}:
        return None
    return tuple(
        msgspec.structs.replace(field, problem=problem, problem_at=at) if field.name == name else field
        for field in fields
    )


def whole_number(text: str) -> int:
    """Parse an integer such as ``1,000,000``. Raises InvalidRequest."""
    plain = re.sub(r"(?<=\d)[,_ ](?=\d{3}\b)", "", text)
    if not re.fullmatch(r"[+-]?\d{1,18}", plain, re.ASCII):
        raise InvalidRequest(f"enter a whole number, not {text!r}")
    return int(plain)


def _value(field: Field, text: str) -> Any:
    """Parse a value; None for an empty field. Raises InvalidRequest."""
    if field.shape == "check":
        return True if text else None
    if not text:
        return None
    match field.shape:
        case "whole":
            return size_of(text) if field.name.endswith("bytes") else whole_number(text)
        case "number":
            try:
                return float(text)
            except ValueError:
                raise InvalidRequest(f"enter a number, not {text!r}") from None
        case "choice":
            return {"true": True, "false": False}.get(text, text) if field.choices == ("true", "false") else text
        case "pairs":
            return dict(_pair(line) for line in text.splitlines() if line.strip())
        case "lines":
            return [line.strip() for line in text.splitlines() if line.strip()]
        case "json":
            try:
                return msgspec.json.decode(text)
            except msgspec.DecodeError as error:
                raise InvalidRequest(f"this is not JSON: {error}") from error
    return text


def _text(field: Field, value: Any) -> str:
    match field.shape:
        case "check":
            return "on" if value else ""
        case "pairs":
            return "\n".join(f"{name} = {part}" for name, part in value.items())
        case "lines":
            return "\n".join(value)
        case "text" | "filter" | "choice" if isinstance(value, str):
            return value
    return msgspec.json.encode(value).decode()


def size_of(text: str) -> int:
    """Parse ``512 MiB``, ``1.5GB``, or a number of bytes. Raises InvalidRequest."""
    found = _SIZE.fullmatch(text.replace(" ", ""))
    if len(text) > _MAX_DIGITS:
        raise InvalidRequest("a number with so many digits is not a size")
    if found is None or not found[2]:
        return whole_number(text.removesuffix("B").rstrip())
    base = 1024 if found[3] else 1000
    return int(float(found[1]) * base ** (_UNITS.index(found[2].upper()) + 1))


def _pair(line: str) -> tuple[str, str]:
    name, equals, value = line.partition("=")
    if not equals or not name.strip() or not value.strip():
        raise InvalidRequest(f"each line must be a name, = and a value, not {line.strip()!r}")
    return name.strip(), value.strip()


def _field(field: inspect.Field, field_type: Any, help_text: str, *, advanced: bool) -> Field:
    shape, choices = _shape(field)
    return Field(
        name=field.name,
        parameter=f"arg_{field.name}" if field.name in RESERVED else field.name,
        label=_label(field.name),
        help=help_text,
        shape=shape,
        type=field_type,
        choices=choices,
        required=field.required,
        advanced=advanced,
    )


def _shape(field: inspect.Field) -> tuple[Shape, tuple[str, ...]]:
    kind = field.type
    if isinstance(kind, inspect.UnionType):
        others = [each for each in kind.types if not isinstance(each, inspect.NoneType)]
        kind = others[0] if len(others) == 1 else kind
    if isinstance(kind, inspect.BoolType):
        return ("check", ()) if field.default is False else ("choice", ("true", "false"))
    if isinstance(kind, inspect.LiteralType) and all(isinstance(value, str) for value in kind.values):
        return "choice", tuple(str(value) for value in kind.values)
    if isinstance(kind, inspect.IntType):
        return "whole", ()
    if isinstance(kind, inspect.FloatType):
        return "number", ()
    if isinstance(kind, inspect.StrType):
        return ("filter" if field.name == "where" else "text"), ()
    if isinstance(kind, inspect.DictType) and isinstance(kind.value_type, inspect.StrType):
        return "pairs", ()
    if isinstance(kind, inspect.ListType | inspect.VarTupleType) and isinstance(kind.item_type, inspect.StrType):
        return "lines", ()
    return "json", ()


def _descriptions(arguments: type[Any]) -> dict[str, str]:
    """Return the descriptions of members in the docstrings of a struct and its nested ones: ```name``: text.``"""
    found = {}
    for each in reversed(arguments.__mro__):
        pieces = _NAMED.split(" ".join((each.__dict__.get("__doc__") or "").split()))
        for names, text in zip(pieces[1::2], pieces[2::2], strict=True):
            found.update(dict.fromkeys(_NAME.findall(names), _sentence(text.replace("``", ""))))
    return found


def _label(name: str) -> str:
    return words.sentence(name.replace("_", " "))


def _sentence(text: str) -> str:
    text = text.strip()
    return words.sentence(text) + ("" if text.endswith((".", "!", "?")) else ".")
