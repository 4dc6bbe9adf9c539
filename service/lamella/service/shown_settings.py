"""The settings in force as people may see them: nothing secret, whatever it stands in."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec
from pydantic.fields import FieldInfo

from lamella.service.settings import Settings

SET: Final = "(set, not shown)"
NOT_SET: Final = "(not set)"
_HIDDEN: Final = "***"
#: The user and password of an address; a password may have slashes, although it should not.
_USER: Final = re.compile(r"(?<=://)(?:[^/\s?#]*|[^\s@]*:\S*)@")
#: Values in an address's query, and of a connection string's words. What may be shown there is not worth the risk.
_QUERY: Final = re.compile(r"(?<=[?&;])([^=&;\s]+)=[^&;\s'\"]*")


class ShownSetting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting. ``value``: its text; of a secret one only whether it is set."""

    name: str
    value: str
    description: str
    is_default: bool
    is_secret: bool


def shown_settings(settings: Settings) -> tuple[ShownSetting, ...]:
    """All settings, in the order of docs/settings.md."""
    return tuple(_shown(name, field, getattr(settings, name)) for name, field in Settings.model_fields.items())


def without_secrets(text: str) -> str:
    """A text without the credentials that stand in its addresses."""
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
