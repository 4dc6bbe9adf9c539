"""Iceberg catalogs, read with pyiceberg: REST catalogs, and whatever else it is configured for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from lamella.client.catalogs.tables import SourceTable
from lamella.snapshot.errors import InvalidRequest, LamellaError, ObjectNotFound, StoreError

#: The name of a catalog that is given by its address, for pyiceberg's messages.
_UNNAMED: Final = "import"


class IcebergCatalog:
    """The tables of an Iceberg catalog. ``target``: the address of a REST catalog, or the name of one in pyiceberg's
    configuration. ``properties``: pyiceberg's, such as ``warehouse`` and ``token``.

    Each table is followed by the metadata file that the catalog names.
    """

    def __init__(self, target: str, properties: Mapping[str, str] | None = None) -> None:
        """Connect.

        Raises:
            InvalidRequest: an address with a password, or a catalog that is not configured.
            StoreError: it cannot be reached.
            ModuleNotFoundError: the extra ``lamella[iceberg]`` is not installed.
        """
        from pyiceberg.catalog import load_catalog

        self._namespaces: dict[str, tuple[str, ...]] = {}
        given = dict(properties or {})
        if "://" in target:
            parts = urlsplit(target)
            if parts.username is not None or parts.query:
                raise InvalidRequest("give credentials as properties, not in the address")
            self._address = f"iceberg {target.rstrip('/')}"
            given = {"type": "rest", **given, "uri": target}
        else:
            self._address = f"iceberg {target}"
        warehouse = given.get("warehouse")
        if warehouse is not None and "://" in target:
            self._address += f" {warehouse}"
        with _errors(self._address):
            self._catalog: Any = load_catalog(_UNNAMED if "://" in target else target, **given)

    @property
    def address(self) -> str:
        """Return ``iceberg`` with the address or name, and the warehouse of a REST catalog."""
        return self._address

    def databases(self) -> list[str]:
        """Return the names of all namespaces; the levels of one are joined by dots."""
        waiting: list[tuple[str, ...]] = [()]
        while waiting:
            parent = waiting.pop()
            with _errors(self._address):
                found = self._catalog.list_namespaces(parent) if parent else self._catalog.list_namespaces()
            for each in found:
                name = ".".join(each)
                if name not in self._namespaces and each != parent:
                    self._namespaces[name] = tuple(each)
                    waiting.append(tuple(each))
        return sorted(self._namespaces)

    def names(self, database: str) -> list[str]:
        """Return the names of the tables of a namespace."""
        with _errors(self._address):
            return sorted(str(found[-1]) for found in self._catalog.list_tables(self._namespaces[database]))

    def tables(self, database: str, names: Sequence[str]) -> Iterator[SourceTable]:
        """Yield some tables of a namespace; those that are gone by now are left out."""
        for name in names:
            try:
                with _errors(self._address):
                    found = self._catalog.load_table((*self._namespaces[database], name))
            except ObjectNotFound:
                continue
            except LamellaError as error:
                yield SourceTable(database=database, name=name, refused=error)
                continue
            yield SourceTable(database=database, name=name, kind="iceberg", location=found.metadata_location)


@contextmanager
def _errors(address: str) -> Iterator[None]:
    """Turn pyiceberg's errors, and those of the libraries below it, into Lamella's."""
    from pyiceberg.exceptions import NoSuchTableError

    try:
        yield
    except LamellaError:
        raise
    except NoSuchTableError as error:
        raise ObjectNotFound(str(error), location=address) from error
    except Exception as error:  # whatever the library of a catalog raises
        raise StoreError(f"the catalog cannot be read: {type(error).__name__}: {error}", location=address) from error
