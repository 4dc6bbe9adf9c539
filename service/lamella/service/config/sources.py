"""Sources of settings: options, environment variables, files named by variables, a configuration file, defaults. Also
prints settings without their secrets.

The first source that has a setting wins, in that order. ``LAMELLA_<NAME>_FILE`` names a file with the value of a
setting, which is how containers get secrets; ``LAMELLA_CONFIG`` names a configuration file in TOML. An unknown name is
refused in the file. In the environment, which others use too, it is refused only if it looks like a mistyped setting.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Mapping, Set
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import EnvSettingsSource, SettingsError

from lamella.service.config.settings import ENV_PREFIX, Settings
from lamella.snapshot.errors import InvalidSettings

CONFIG: Final = ENV_PREFIX + "CONFIG"
_FILE: Final = "_FILE"
#: Variables of other parts of Lamella.
_OTHERS: Final = frozenset(
    ENV_PREFIX + name
    for name in ("CONFIG", "URL", "TOKEN", "TOKEN_FILE", "PROFILE", "PROFILES_FILE", "JOB_CHECKPOINT", "COMPLETE")
)
#: Similarity to a setting's name from which a variable counts as a mistyped setting.
_MISTYPED: Final = 0.85
_SIMILARITY: Final = 0.6


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The source of a setting's value; ``name``: the variable, or the path of the file."""

    kind: Literal["option", "environment", "secret file", "file", "default"]
    name: str | None = None

    def __str__(self) -> str:
        return self.kind if self.name is None else f"{self.kind} {self.name}"


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """Settings, and the source of each. ``warnings``: possible mistakes that do not prevent a start."""

    settings: Settings
    origins: dict[str, Origin]
    config: str | None
    warnings: tuple[str, ...]


#: Options that say nothing of where data is, or who reaches it.
_HARMLESS: Final = frozenset(("port", "workers", "log_format"))


def load_settings(
    given: Mapping[str, Any] | None = None,
    *,
    config: str | None = None,
    folder: str | None = None,
    lake: str | None = None,
) -> Configuration:
    """Return the settings in effect. ``given``: options by name; ``config``: the configuration file of an option.

    An option that is None was not given; its name tells that there is such an option. ``folder``: the warehouse if no
    file and no variable sets anything, and the options say nothing of data or access. Wherever a service is configured,
    a forgotten warehouse stays an error: an empty one would hide it. ``lake``: the folder of a lake that exists, which
    is the warehouse if nothing sets one or a catalog.

    Raises:
        InvalidSettings: they cannot be used; ``problems`` lists all errors with the source of each setting or how to
            set it, without values.
    """
    problems: list[str] = []
    config = config if config is not None else os.environ.get(CONFIG) or None
    origins = {name: Origin(kind="default") for name in Settings.model_fields}
    values: dict[str, Any] = {}
    warnings: list[str] = []
    if config is not None:
        found, warnings = _of_config(Path(config), problems)
        values |= found
        origins |= {name: Origin(kind="file", name=config) for name in found}
    files, variables = _variables(problems, warnings)
    for kind, texts in (("secret file", files), ("environment", variables)):
        for name, (source, text) in texts.items():
            try:
                values[name] = _read(name, text)
            except SettingsError:
                problems.append(f"{source}: the value of {name} is not JSON")
            origins[name] = Origin(kind="environment" if kind == "environment" else "secret file", name=source)
    options = {name: value for name, value in (given or {}).items() if value is not None}
    values |= options
    origins |= {name: Origin(kind="option") for name in options}
    if folder is not None and config is None and not files and not variables and options.keys() <= _HARMLESS:
        values["warehouse"] = folder
    if lake is not None and values.keys().isdisjoint(("warehouse", "catalog")):
        values["warehouse"] = lake
    settings = None if problems else _settings(values, origins, frozenset(given or {}), problems)
    if settings is None:
        raise InvalidSettings("; ".join(problems), problems=problems)
    return Configuration(settings=settings, origins=origins, config=config, warnings=tuple(warnings))


def _settings(
    values: Mapping[str, Any], origins: Mapping[str, Origin], options: Set[str], problems: list[str]
) -> Settings | None:
    try:
        return Settings(**values)
    except ValidationError as error:
        problems += [_warn_of(found, origins, options, values) for found in error.errors()]
        return None


def _warn_of(found: ErrorDetails, origins: Mapping[str, Origin], options: Set[str], values: Mapping[str, Any]) -> str:
    name = str(found["loc"][0]) if found["loc"] else ""
    if found["type"] == "missing" and len(found["loc"]) == 1:
        return _missing(name, options)
    origin = origins.get(name)
    path = ".".join(str(part) for part in found["loc"])
    variable = ENV_PREFIX + name.upper()
    match origin:
        case Origin(kind="file"):
            where = f"{path} in {origin.name}"
        case Origin(kind="secret file" | "environment"):
            where = f"{origin.name}"
        case Origin(kind="option"):
            where = _option(name)
        case _:
            where = variable
    hint = ""
    if name == "port" and str(values.get(name)).startswith("tcp://"):
        hint = (
            " (Kubernetes sets it for a Service that is called lamella: give the pod enableServiceLinks: false, or the "
            "Service another name)"
        )
    return f"{where}: {_wrong(found)}{hint}"


def _missing(name: str, options: Set[str]) -> str:
    """Return the message for a missing setting: its name, its purpose, and every way to set it."""
    variable = ENV_PREFIX + name.upper()
    ways = [f"give {_option(name)}"] if name in options else []
    ways.append(f"set {variable}, or {variable}{_FILE} to the path of a file that holds it")
    ways.append(f"or add {name} to the configuration file that {'--config or ' if options else ''}{CONFIG} names")
    text = (Settings.model_fields[name].description or "").rstrip(".")
    return f"{variable}: the setting {name} is missing ({text}): {', '.join(ways)}"


def setting_problem(found: ErrorDetails) -> str:
    """Return what is wrong with a setting that a program gave, without its value."""
    name = ".".join(str(part) for part in found["loc"])
    if found["type"] == "extra_forbidden":
        near = get_close_matches(name, Settings.model_fields, 1, _SIMILARITY)
        return f"{name} is not a setting" + (f"; did you mean {near[0]}?" if near else "")
    return f"{name}: {_wrong(found)}"


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _wrong(found: ErrorDetails) -> str:
    """Return what is wrong with a value, without the value, which may be a secret."""
    of = found.get("ctx", {})
    match found["type"]:
        case "int_parsing" | "int_type" | "int_from_float":
            return "must be a whole number"
        case "float_parsing" | "float_type":
            return "must be a number"
        case "bool_parsing" | "bool_type":
            return "must be true or false"
        case "greater_than_equal":
            return f"must be at least {of['ge']}"
        case "less_than_equal":
            return f"must be at most {of['le']}"
        case "greater_than":
            return f"must be more than {of['gt']}"
        case "less_than":
            return f"must be less than {of['lt']}"
        case "string_too_short" if of["min_length"] == 1:
            return "must not be empty"
        case "literal_error":
            return f"must be {of['expected']}"
        case _:
            return found["msg"].removeprefix("Value error, ").replace("Input should be", "must be")


def _of_config(path: Path, problems: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the settings of a configuration file, and warnings about it."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            found = tomllib.load(file)
    except OSError as error:
        problems.append(f"{path}: {error.strerror}")
        return {}, []
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        problems.append(f"{path}: not valid TOML: {error}")
        return {}, []
    for name in found:
        if name not in Settings.model_fields:
            near = get_close_matches(name, Settings.model_fields, 1, _SIMILARITY)
            problems.append(f"{name} in {path} is not a setting" + (f"; did you mean {near[0]}?" if near else ""))
    secrets = [name for name in found if name in Settings.model_fields and not Settings.model_fields[name].repr]
    warnings = []
    if secrets and mode & (stat.S_IRGRP | stat.S_IROTH):
        warnings.append(f"{path} contains {', '.join(secrets)}, and is readable for others than its owner")
    return {name: value for name, value in found.items() if name in Settings.model_fields}, warnings


_Texts = dict[str, tuple[str, str]]


def _variables(problems: list[str], warnings: list[str]) -> tuple[_Texts, _Texts]:
    """Return the texts of settings with their sources: from files that variables name, and from variables."""
    by_variable = {ENV_PREFIX + name.upper(): name for name in Settings.model_fields}
    files: _Texts = {}
    variables: _Texts = {}
    for variable in sorted(os.environ):
        if not variable.upper().startswith(ENV_PREFIX) or variable in _OTHERS:
            continue
        text, upper = os.environ[variable], variable.upper()
        if upper in by_variable:
            variables[by_variable[upper]] = variable, text
        elif upper.endswith(_FILE) and upper.removesuffix(_FILE) in by_variable:
            name = by_variable[upper.removesuffix(_FILE)]
            try:
                files[name] = variable, Path(text).read_text("utf-8").rstrip("\r\n")
            except (OSError, UnicodeDecodeError) as error:
                problems.append(f"{variable}: {getattr(error, 'strerror', None) or 'not UTF-8'}: {text}")
        elif near := get_close_matches(upper.removeprefix(ENV_PREFIX).lower(), Settings.model_fields, 1, _MISTYPED):
            problems.append(f"{variable} is not a setting; did you mean {ENV_PREFIX}{near[0].upper()}?")
        else:
            warnings.append(f"{variable} is not a setting, and is ignored")
    problems += [
        f"{variables[name][0]} and {files[name][0]} are both set; remove one of them"
        for name in sorted(files.keys() & variables.keys())
    ]
    return files, variables


def _read(name: str, text: str) -> Any:
    """Parse a variable's text as pydantic does: as JSON unless the setting is a plain value."""
    source = EnvSettingsSource(Settings)
    source.env_vars = {(ENV_PREFIX + name).lower(): text}
    return source().get(name)  # pydantic leaves out null


SET: Final = "(set, not shown)"
NOT_SET: Final = "(not set)"
_HIDDEN: Final = "***"
#: The user and password in an address; a password may contain slashes, although it should not.
_USER: Final = re.compile(r"(?<=://)(?:[^/\s?#]*|[^\s@]*:\S*)@")
#: Values in an address's query, and in the words of a connection string. They are all hidden, to be safe.
_QUERY: Final = re.compile(r"(?<=[?&;])([^=&;\s]+)=[^&;\s'\"]*")


class ShownSetting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting. ``value``: its text; for a secret only whether it is set."""

    name: str
    value: str
    description: str
    is_default: bool
    is_secret: bool


def shown_settings(settings: Settings) -> tuple[ShownSetting, ...]:
    """Return all settings, in the order of docs/settings.md."""
    return tuple(_shown(name, field, getattr(settings, name)) for name, field in Settings.model_fields.items())


def without_secrets(text: str) -> str:
    """Remove the credentials from addresses in a text."""
    return _QUERY.sub(rf"\1={_HIDDEN}", _USER.sub(_HIDDEN + "@", text))


def _shown(name: str, field: FieldInfo, value: Any) -> ShownSetting:
    is_default = not field.is_required() and value == field.default
    is_secret = not field.repr
    if is_secret:
        text = NOT_SET if value is None or value == {} else SET
    elif value is None:
        text = NOT_SET
    else:
        text = without_secrets(value if isinstance(value, str) else msgspec.json.encode(value).decode())
    return ShownSetting(
        name=name, value=text, description=field.description or "", is_default=is_default, is_secret=is_secret
    )
