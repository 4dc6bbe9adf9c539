"""Settings of the service: environment variables ``LAMELLA_<NAME>``, or arguments of :class:`Settings`.

Every setting is described in ``docs/settings.md``; a test holds the two together.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any, Literal

import msgspec
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.layout.location import normal, parse

ENV_PREFIX = "LAMELLA_"


class Settings(BaseSettings):
    """What one service process needs to know. Frozen: a change of settings is a restart."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True, extra="forbid")

    warehouse: str = Field(
        min_length=1,
        description="Folder of all tables: a path, or a `file://` or `s3://bucket/prefix` URL.",
    )
    catalog: str | None = Field(
        default=None,
        repr=False,
        description=(
            "Database of namespaces, tables and pointers: a path or `sqlite:///` URL (one machine), or "
            "`postgresql+psycopg://user:password@host/database`. Default: `_catalog.db` inside a local warehouse."
        ),
    )
    store_options: dict[str, dict[str, Any]] = Field(
        default={},
        repr=False,
        description='Options of the object store by protocol, as JSON: `{"s3": {"endpoint_url": "..."}}`.',
    )
    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8181, ge=1, le=65535, description="Port to listen on.")
    workers: int = Field(default=1, ge=1, le=256, description="Processes that serve requests.")
    insecure: bool = Field(
        default=False,
        description="Allow a `host` that other machines can reach, although requests are not authenticated yet.",
    )
    max_body_bytes: int = Field(
        default=64 << 20, ge=1024, description="Largest request body in bytes; a larger one is answered with 413."
    )
    cache_bytes: int = Field(
        default=256 << 20, ge=0, description="Memory for manifests and companions, in bytes per process."
    )
    page_cache_bytes: int = Field(
        default=64 << 20, ge=0, description="Memory for page statistics, in bytes per process."
    )
    page_files: int = Field(
        default=256,
        ge=0,
        description=(
            "Files that one request opens for the pages of segments without a page companion; blocks beyond that are "
            "answered whole."
        ),
    )
    page_companions: bool = Field(
        default=False, description="Build the page companion of new segments when their blocks are registered."
    )
    read_threads: int = Field(default=8, ge=1, le=256, description="Reads and prunes that run at once in a process.")
    write_threads: int = Field(default=8, ge=1, le=256, description="Mutations that run at once in a process.")
    ingest_threads: int = Field(
        default=16, ge=1, le=256, description="Footers and file sizes that one registration or commit asks for at once."
    )
    commit_deadline_s: float = Field(
        default=60.0,
        gt=0,
        description="How long a commit that keeps losing the race for the pointer is tried again, in seconds.",
    )
    idempotency_ttl_s: int = Field(
        default=86_400, ge=60, description="How long an answer can be replayed by its `Idempotency-Key`, in seconds."
    )
    page_size_max: int = Field(default=1_000, ge=1, le=100_000, description="Largest `page_size` of a listing.")
    token_secret: str | None = Field(
        default=None,
        min_length=16,
        repr=False,
        description=(
            "Signs page tokens; replicas with the same one serve each other's pages. Default: a random one, kept in "
            "the catalog database that the replicas share."
        ),
    )
    catalog_timeout_s: float = Field(
        default=30.0, gt=0, description="How long a statement waits for a lock of the catalog database, in seconds."
    )
    shutdown_grace_s: int = Field(
        default=30, ge=0, description="How long running requests may take after SIGTERM, in seconds."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe log line that is written."
    )
    log_format: Literal["json", "text"] = Field(default="json", description="One JSON object a line, or plain text.")
    log_requests: bool = Field(default=True, description="Write one log line for each request.")

    @property
    def catalog_url(self) -> str:
        """The catalog's address, with its default filled in.

        Raises:
            InvalidRequest: no ``catalog`` was given and the warehouse is not local.
        """
        if self.catalog is not None:
            return self.catalog
        place = parse(self.warehouse_url)
        if place.scheme == "file":
            return str(Path(place.path) / "_catalog.db")
        raise InvalidRequest(
            f"a warehouse on {place.scheme}:// needs a catalog of its own: set {ENV_PREFIX}CATALOG "
            "(a path for SQLite, or a postgresql+psycopg:// URL)"
        )

    @property
    def warehouse_url(self) -> str:
        """The warehouse as a location without a slash at its end; raises InvalidRequest when it is none."""
        text = self.warehouse if ":" in self.warehouse else str(Path(self.warehouse).absolute())
        return normal(text).rstrip("/")

    @property
    def is_loopback(self) -> bool:
        """True when only programs on this machine can reach ``host``; a name other than ``localhost`` counts as not."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False

    def environment(self) -> dict[str, str]:
        """These settings as environment variables, for worker processes that read them from there."""
        variables = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if value is None:
                continue
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
            variables[ENV_PREFIX + name.upper()] = text
        return variables
