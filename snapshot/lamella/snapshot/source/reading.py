"""Asking a source, whatever kind it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.layout import Anywhere, Places, Store
from lamella.snapshot.source.definition import IDENTITY
from lamella.snapshot.source.delta import read_delta
from lamella.snapshot.source.directory import read_directory
from lamella.snapshot.source.iceberg import Catalogs, read_iceberg
from lamella.snapshot.source.options import StoreOptions
from lamella.snapshot.source.state import SourceState
from lamella.snapshot.wire import ExternalSource

_ANYWHERE: Final = Anywhere()
_NO_OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = {}


class Reader:
    """Reads sources. ``options``: the store's own, by scheme; ``catalogs``: Iceberg catalogs by name."""

    def __init__(self, store: Store, *, options: StoreOptions = _NO_OPTIONS, catalogs: Catalogs = _NO_OPTIONS) -> None:
        self._store = store
        self._options = options
        self._catalogs = catalogs

    def read(self, source: ExternalSource, properties: Mapping[str, str], places: Places = _ANYWHERE) -> SourceState:
        """What the source is now; nothing outside of ``places`` is looked at, whoever names it.

        Raises:
            InvalidRequest, InvalidSchema: it cannot be followed, or is another one than the table was made of.
            LocationRefused: it lies outside of ``places``, or cannot be read without what does.
            ObjectNotFound, StoreError: it is not there, or cannot be read.
        """
        if source.kind == "directory":
            return read_directory(self._store, source, places)
        if source.kind == "delta":
            state = read_delta(self._store, source, self._options, places)
        else:
            state = read_iceberg(self._store, source, self._options, self._catalogs, places)
        known = properties.get(IDENTITY)
        if known is not None and known != state.identity:
            raise InvalidRequest(f"the source is {state.identity}, and the table was made of {known}: another one")
        return state
