"""Access to a table's files on S3 for Iceberg clients that ask for it: credentials, or signatures of their requests.

A client names the ways that it knows in the header ``X-Iceberg-Access-Delegation``; the first one that the settings
allow counts. Nothing is given for other stores.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import msgspec
from cachetools import LRUCache
from starlette.requests import Request
from structlog.typing import FilteringBoundLogger

from lamella.service.access import principal_of
from lamella.service.catalog import Catalog, TableRecord
from lamella.service.config.settings import Settings
from lamella.service.iceberg.granted import GrantedFolders, granted_folders
from lamella.service.iceberg.hosted import HostedTables
from lamella.service.iceberg.s3_requests import S3Requests
from lamella.service.iceberg.s3_sessions import Keys, S3Sessions, ServiceKeys, assume_role
from lamella.service.tables.names import LocationRules
from lamella.snapshot.errors import InvalidPageToken, NamespaceNotFound, NotExpressible, TableNotFound
from lamella.snapshot.iceberg.table_metadata import Json
from lamella.snapshot.iceberg.wire import RequestToSign, SignedRequest, StorageCredential
from lamella.snapshot.tokens import SignedTokens
from lamella.snapshot.warehouse import Warehouse

_HEADER: Final = "x-iceberg-access-delegation"
_CREDENTIALS: Final = "vended-credentials"
_SIGNING: Final = "remote-signing"
_REMEMBERED: Final = 10_000
#: Returns the metadata of a table.
ReadMetadata = Callable[[], Json | None]
#: Between the levels of a namespace in a path.
_LEVEL: Final = "\x1f"
#: How long requests for the files of a table that is not created yet are signed.
_STAGED_S: Final = 86_400
#: The query parameter with the folders of such a table.
STAGED: Final = "staged"
#: What pyiceberg needs to have its requests signed; Java's client needs the first.
_SIGNER: Final = {
    "s3.remote-signing-enabled": "true",
    "s3.signer": "S3V4RestSigner",
    "py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO",
}


class Access(msgspec.Struct, frozen=True):
    """What an answer has beside the metadata: properties of all files, and credentials by prefix."""

    config: dict[str, str] = {}
    credentials: tuple[StorageCredential, ...] = ()


class Caller(msgspec.Struct, frozen=True):
    """Who asks for a table, and how it can use the table's files."""

    namespace: str
    name: str
    ways: tuple[str, ...]
    may_write: bool

    @classmethod
    def of(cls, request: Request, namespace: str, name: str, *ways: str) -> Caller:
        """Return the caller of a request about a table. ``ways``: instead of those in the header."""
        given = request.headers.get(_HEADER, "").split(",")
        may_write = principal_of(request).rights.may("write", namespace, name)
        return cls(namespace, name, ways or tuple(each.strip().lower() for each in given), may_write)

    @property
    def path(self) -> str:
        """Return the path of the table below the catalog's URL."""
        levels = quote(_LEVEL.join(self.namespace.split(".")), safe="")
        return f"v1/namespaces/{levels}/tables/{quote(self.name, safe='')}"


class _Staged(msgspec.Struct, frozen=True):
    """The folders of a table that is not created yet, and until when requests for them are signed."""

    folders: GrantedFolders
    expires_ms: int


_STAGED: Final = msgspec.json.Decoder(_Staged)


class StorageAccess:
    """Gives access. ``secret`` signs the folders of tables that are not created yet. Methods with a table block."""

    def __init__(
        self,
        *,
        settings: Settings,
        catalog: Catalog,
        warehouse: Warehouse,
        rules: LocationRules,
        hosted: HostedTables,
        secret: bytes,
        clock: Callable[[], int],
        log: FilteringBoundLogger,
    ) -> None:
        options = settings.store_options.get("s3", {})
        self._catalog = catalog
        self._warehouse = warehouse
        self._rules = rules
        self._hosted = hosted
        self._secret = secret
        self._clock = clock
        self._static = settings.iceberg_static_keys
        self._keys = ServiceKeys(options)
        self._sessions: S3Sessions | None = None
        if settings.iceberg_role_arn is not None:
            partition = settings.iceberg_role_arn.split(":")[1]
            self._sessions = S3Sessions(
                assume_role(settings, self._keys),
                partition=partition if partition.startswith("aws") else "aws",
                lifetime_s=settings.iceberg_credentials_s,
                clock=clock,
                log=log,
            )
        self._requests: S3Requests | None = None
        if settings.iceberg_remote_signing:
            self._requests = S3Requests(_endpoints(options, settings.iceberg_properties))
        self._lock = threading.Lock()
        self._known: LRUCache[tuple[str, str, str, bool], GrantedFolders] = LRUCache(_REMEMBERED)

    @property
    def signs(self) -> bool:
        """Return whether requests are signed."""
        return self._requests is not None

    def to(
        self, caller: Caller, table_id: str, read: ReadMetadata, location: str = "", *, is_staged: bool = False
    ) -> Access:
        """Return the access that a caller gets to a table, whose metadata is in the file at ``location``.

        ``read`` reads it; None: of a table that Iceberg clients do not commit to. ``is_staged``: it is not created yet.

        Raises:
            NotExpressible: its locations are too long for temporary credentials.
            NotSignable, StoreError: the service cannot get credentials.
        """
        for way in caller.ways:
            if way == _CREDENTIALS and (self._static or self._sessions is not None):
                folders = self._folders(caller, table_id, read, location)
                return self._credentials(caller, table_id, folders, is_staged=is_staged)
            if way == _SIGNING and self._requests is not None:
                folders = self._folders(caller, table_id, read, location)
                return self._signer(caller, table_id, folders, is_staged=is_staged)
        return Access()

    def to_created(self, caller: Caller, metadata: Json, location: str) -> Access:
        """Return the access to a table that was just created, as :meth:`to`; none if it is gone already."""
        try:
            record = self._catalog.table(caller.namespace, caller.name)
        except (NamespaceNotFound, TableNotFound):
            return Access()
        return self.to(caller, record.main_id, lambda: metadata, location)

    def credentials(self, caller: Caller, record: TableRecord) -> tuple[StorageCredential, ...]:
        """Return the credentials that a caller gets for a table, if there are any. Raises as :meth:`to`."""
        if not self._static and self._sessions is None:
            return ()
        folders = self._of_table(caller, record)
        return self._credentials(caller, record.main_id, folders, is_staged=False).credentials

    def sign(self, caller: Caller, request: RequestToSign, staged: str | None) -> SignedRequest:
        """Return a signed request. ``staged``: the token of a table that may not be created yet.

        Raises:
            InvalidRequest, LocationRefused, PermissionDenied: it is not signed.
            NotExpressible: the service signs none.
            TableNotFound, NamespaceNotFound: there is no such table, and no valid token.
            NotSignable, StoreError: the service has no credentials.
        """
        if self._requests is None:
            raise NotExpressible("the service signs no requests to storage: set iceberg_remote_signing")
        try:
            folders = self._of_table(caller, self._catalog.table(caller.namespace, caller.name))
        except TableNotFound:
            found = None if staged is None else self._staged(caller, staged)
            if found is None or found.expires_ms <= self._clock():
                raise
            folders = found.folders
        keys = self._keys.current()
        return self._requests.signed(request, folders, keys, may_write=caller.may_write, now_ms=self._clock())

    def _of_table(self, caller: Caller, record: TableRecord) -> GrantedFolders:
        location = self._hosted.location_of(record)
        read = partial(self._hosted.metadata, location) if location is not None else lambda: None
        return self._folders(caller, record.main_id, read, location or "")

    def _folders(self, caller: Caller, table_id: str, read: ReadMetadata, location: str) -> GrantedFolders:
        """Return the folders of a table. ``location``: its metadata file, which does not change; ``read`` reads it."""
        key = (table_id, caller.namespace, location, caller.may_write)
        with self._lock:
            known = self._known.get(key)
        if known is not None:
            return known
        folders = granted_folders(
            self._rules, self._warehouse, caller.namespace, table_id, read(), may_write=caller.may_write
        )
        if location:
            with self._lock:
                self._known[key] = folders
        return folders

    def _credentials(self, caller: Caller, table_id: str, folders: GrantedFolders, *, is_staged: bool) -> Access:
        if not folders.read:
            return Access()
        config: dict[str, str] = {}
        if self._sessions is not None:
            session = self._sessions.of(table_id, folders)
            config = {**_properties(session.keys), "s3.session-token-expires-at-ms": str(session.expires_ms)}
            if not is_staged:
                config["client.refresh-credentials-endpoint"] = f"{caller.path}/credentials"
        else:
            given = self._static.get("write" if caller.may_write else "read")
            if given is None:
                return Access()
            config = _properties(Keys(given["key"], given["secret"], given.get("token")))
        # Some clients look only into the table's properties, and pyiceberg does for tables that are not created yet.
        return Access(config, tuple(StorageCredential(prefix=each, config=config) for each in folders.read))

    def _signer(self, caller: Caller, table_id: str, folders: GrantedFolders, *, is_staged: bool) -> Access:
        if not folders.read:
            return Access()
        endpoint = f"{caller.path}/sign"
        if is_staged:
            staged = _Staged(folders, self._clock() + _STAGED_S * 1000)
            endpoint += f"?{STAGED}={self._tokens(caller).write(msgspec.json.encode(staged))}"
        # Releases of Java's client differ in the name. pyiceberg has one signer for all tables with the same properties
        # of a store, so this key, which is never used, makes them differ.
        key = {"s3.access-key-id": f"none-{table_id}-{caller.may_write}".lower(), "s3.secret-access-key": "none"}
        return Access({**_SIGNER, **key, "s3.signer.endpoint": endpoint, "signer.endpoint": endpoint})

    def _staged(self, caller: Caller, token: str) -> _Staged | None:
        """Return what a token says; None if it is not one for this table."""
        try:
            return _STAGED.decode(self._tokens(caller).read(token))
        except (InvalidPageToken, msgspec.DecodeError):
            return None

    def _tokens(self, caller: Caller) -> SignedTokens:
        purpose = f"lamella folders of a staged table\0{caller.namespace}\0{caller.name}"
        return SignedTokens(self._secret, purpose, max_characters=1 << 16)


def _properties(keys: Keys) -> dict[str, str]:
    found = {"s3.access-key-id": keys.key, "s3.secret-access-key": keys.secret}
    return found if keys.token is None else {**found, "s3.session-token": keys.token}


def _endpoints(options: Mapping[str, Any], properties: Mapping[str, str]) -> list[str]:
    """Return the addresses of the store that the settings name."""
    given = (
        properties.get("s3.endpoint"),
        options.get("signed_endpoint_url"),
        options.get("endpoint_url"),
        options.get("client_kwargs", {}).get("endpoint_url"),
    )
    return [str(each) for each in given if each]
