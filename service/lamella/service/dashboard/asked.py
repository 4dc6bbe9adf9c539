"""What a page's address asks for: a table, a snapshot of it, a number."""

from __future__ import annotations

import re
from typing import Final

import msgspec
from starlette.requests import Request

from lamella.service.catalog import TableRecord
from lamella.service.services import Services
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.manifest import SnapshotPointer

_TIME: Final = re.compile(r"\d{4}-\d{2}-\d{2}([T ].*)?\Z")


class At(msgspec.Struct, frozen=True):
    """The snapshot that the parameter ``at`` names: an id, a tag or a time; the current one when ``text`` is empty."""

    text: str = ""

    @property
    def snapshot_id(self) -> str | None:
        """An id or a tag."""
        return self.text if self.text and not self._is_time else None

    @property
    def timestamp(self) -> str | None:
        """A time."""
        return self.text if self._is_time else None

    @property
    def _is_time(self) -> bool:
        return _TIME.match(self.text) is not None

    def pointer(self, services: Services, table: TableRecord) -> SnapshotPointer:
        """That snapshot of a table; raises InvalidRequest, SnapshotNotFound."""
        return services.history.pointer(table, snapshot_id=self.snapshot_id, timestamp=self.timestamp)


def at_of(request: Request, name: str = "at") -> At:
    """The snapshot that a page is asked for."""
    return At(text_of(request, name))


def table_of(services: Services, request: Request) -> TableRecord:
    """The table that a page is about; raises NamespaceNotFound, TableNotFound. Waits for the catalog."""
    return services.table(request.path_params["namespace"], request.path_params["table"])


def text_of(request: Request, name: str) -> str:
    """A parameter without spaces around it; forms send every end of a line as two characters, which is one here."""
    return request.query_params.get(name, "").replace("\r\n", "\n").strip()


def number_of(request: Request, name: str, default: int = 0, most: int = (1 << 53) - 1) -> int:
    """A parameter that is a whole number; raises InvalidRequest."""
    text = request.query_params.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) <= 16 and int(text) <= most):
        raise InvalidRequest(f"{name} is a number up to {most}, not {text!r}", parameter=name)
    return int(text)


def one_of(request: Request, name: str, choices: tuple[str, ...]) -> str:
    """A parameter that is one of some words, the first when it is not given; raises InvalidRequest."""
    text = request.query_params.get(name, "")
    if not text:
        return choices[0]
    if text not in choices:
        raise InvalidRequest(f"{name} is one of {', '.join(choices)}, not {text!r}", parameter=name)
    return text
