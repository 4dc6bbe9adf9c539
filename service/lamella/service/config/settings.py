"""Settings of the service: environment variables ``LAMELLA_<NAME>``, or arguments of :class:`Settings`.

docs/settings.md describes every setting; a test compares the two.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Any, Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.storage.location import normal, parse

ENV_PREFIX = "LAMELLA_"
#: Parts of property names that mark a secret.
_SECRET_WORDS = ("secret", "key", "token", "password", "credential", "connection-string", "sas", "sse")


class Settings(BaseSettings):
    """The settings of one service process. Frozen: a change needs a restart."""

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
    auto_migrate: bool | None = Field(
        default=None,
        description=(
            "Migrate an older catalog to the schema of this release at the start; otherwise run "
            "`lamella catalog migrate`. "
            "Default: with SQLite, not with PostgreSQL. A new catalog is always set up."
        ),
    )
    store_options: dict[str, dict[str, Any]] = Field(
        default={},
        repr=False,
        description='Options of the object store by protocol, as JSON: `{"s3": {"endpoint_url": "..."}}`.',
    )
    iceberg_catalogs: dict[str, dict[str, str]] = Field(
        default={},
        repr=False,
        description=(
            'Iceberg catalogs by name, as JSON of pyiceberg\'s properties: `{"prod": {"type": "rest", "uri": '
            '"..."}}`. Needs `lamella[iceberg]`.'
        ),
    )
    iceberg_properties: dict[str, str] = Field(
        default={},
        description=(
            "Properties that Iceberg clients get with each table, as JSON: where storage is, such as "
            '`{"s3.endpoint": "https://s3.example", "s3.region": "eu-central-1"}`. Every reader of a table sees them, '
            "so names of secrets are refused (with `secret`, `key`, `token`, `password`, `credential`, `sas`, ...)."
        ),
    )
    iceberg_static_keys: dict[Literal["read", "write"], dict[Literal["key", "secret", "token"], str]] = Field(
        default={},
        repr=False,
        description=(
            "S3 keys that Iceberg clients get on request with each table, by their role on it, as JSON: "
            '`{"read": {"key": "...", "secret": "..."}, "write": {...}}`. They open whatever the keys open, to '
            "everyone with that role on any table, and do not expire: prefer `iceberg_role_arn`. Default: none. See "
            "iceberg.md."
        ),
    )
    iceberg_role_arn: str | None = Field(
        default=None,
        pattern=r"^arn:[^:]+:iam::[^:]*:role/.+$",
        description=(
            "Role of AWS IAM that the service assumes for Iceberg clients: on request they get temporary S3 "
            "credentials, limited to the folders of one table. Default: none."
        ),
    )
    iceberg_credentials_s: int = Field(
        default=3_600,
        ge=900,
        le=43_200,
        description="How long these temporary credentials are valid, in seconds; the role must allow it.",
    )
    iceberg_sts_url: str | None = Field(
        default=None,
        pattern=r"^https?://",
        description="Endpoint of the token service (STS) that issues them. Default: that of AWS in the store's region.",
    )
    iceberg_remote_signing: bool = Field(
        default=False,
        description=(
            "Sign S3 requests of Iceberg clients on request, with the service's own credentials, if they are below the "
            "folders of a table and the client's role allows them."
        ),
    )
    allowed_locations: dict[str, list[str]] | None = Field(
        default=None,
        description=(
            "Where files of tables may be, apart from the tables' own folders: prefixes by namespace, "
            "and under `*` for all "
            'namespaces, as JSON: `{"*": ["s3://shared"], "sales": ["s3://sales/exports"]}`. Default: anywhere; with '
            "`auth`, nowhere else. See data-access.md."
        ),
    )
    signed_url_s: int = Field(
        default=900, ge=1, le=604_800, description="How long a signed URL of a block is valid, in seconds."
    )
    signed_urls_max: int = Field(
        default=10_000,
        ge=1_000,  # the page size of the clients
        le=1_000_000,
        description="Most blocks with signed URLs in one answer; larger answers must be requested in pages.",
    )
    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=8181, ge=1, le=65535, description="Port to listen on.")
    workers: int = Field(default=1, ge=1, le=256, description="Processes that serve requests.")
    dashboard: bool = Field(default=True, description="Serve the admin pages at `/ui`.")
    insecure: bool = Field(
        default=False,
        description="Allow a `host` that other machines can reach without `auth`.",
    )
    auth: bool = Field(
        default=False,
        description="Require an API key or a token for every request, and allow only what was granted. See access.md.",
    )
    root_key_sha256: str | None = Field(
        default=None,
        pattern=r"^[0-9a-f]{64}$",
        repr=False,
        description=(
            "SHA-256 of an API key that may do everything and is not in the catalog: the first key. `lamella keys new` "
            "makes both."
        ),
    )
    auth_cache_s: float = Field(
        default=5.0,
        ge=0,
        le=300,
        description="Longest delay until a replica notices a revoked key or a changed grant, in seconds.",
    )
    auth_failures_per_minute: int = Field(
        default=60, ge=1, description="Invalid keys and tokens from one address; more are answered with 429."
    )
    oidc_issuer: str | None = Field(
        default=None,
        pattern=r"^https?://",
        description="Issuer of accepted OpenID Connect tokens, as in their `iss`. Default: none.",
    )
    oidc_audience: str = Field(
        default="lamella", min_length=1, description="Audience that `aud` of such a token must contain."
    )
    oidc_keys_url: str | None = Field(
        default=None,
        pattern=r"^https?://",
        description="URL of the issuer's keys (JWKS). Default: as in its discovery document.",
    )
    oidc_algorithms: tuple[str, ...] = Field(
        default=("RS256", "ES256"), description="Accepted signature algorithms of tokens, as JSON."
    )
    oidc_leeway_s: float = Field(
        default=30.0, ge=0, le=600, description="Allowed difference to the issuer's clock, in seconds."
    )
    oidc_subject_claim: str = Field(
        default="sub", min_length=1, description="The claim with the user name, which grants refer to."
    )
    oidc_groups_claim: str = Field(
        default="groups",
        min_length=1,
        description="The claim with the user's groups; `a.b` for a nested claim.",
    )
    oidc_client_id: str | None = Field(
        default=None,
        min_length=1,
        description="The dashboard's client id at the issuer, for log-ins with it. Default: log-in by key only.",
    )
    oidc_client_secret: str | None = Field(
        default=None, repr=False, description="The dashboard's client secret, if it has one; PKCE is used in any case."
    )
    public_url: str | None = Field(
        default=None,
        pattern=r"^https?://[^/]+(/.*)?$",
        description="URL of this service for browsers, for redirects from the issuer: `https://lake.example.com`.",
    )
    session_s: int = Field(default=28_800, ge=60, description="Longest duration of a dashboard session, in seconds.")
    public_metrics: bool = Field(default=False, description="Serve `/metrics` without a key although `auth` is on.")
    requests_per_s: float = Field(
        default=0.0,
        ge=0,
        description=(
            "Requests of one principal (without `auth`: of one address) in a second and process; more are answered "
            "with 429. 0: no limit."
        ),
    )
    requests_burst_s: float = Field(
        default=5.0, gt=0, description="Burst: seconds without requests whose unused requests may come at once."
    )
    allowed_hosts: tuple[str, ...] = Field(
        default=(),
        description=(
            "Accepted host names of this service, as JSON. Default: any if `auth` or `insecure` is on, "
            "otherwise addresses, and names without a dot."
        ),
    )
    trusted_proxies: str = Field(
        default="",
        description=(
            "Proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are trusted: addresses and networks, separated by "
            "commas. Default: none."
        ),
    )
    tls_cert_file: str | None = Field(
        default=None, min_length=1, description="Certificate chain (PEM) for HTTPS. Default: HTTP."
    )
    tls_key_file: str | None = Field(default=None, min_length=1, description="Private key of the certificate (PEM).")
    max_body_bytes: int = Field(
        default=64 << 20, ge=1024, description="Largest request body in bytes; a larger one is answered with 413."
    )
    cache_bytes: int = Field(
        default=256 << 20, ge=0, description="Memory for manifests and sidecars, in bytes per process."
    )
    cache_dir: str | None = Field(
        default=None,
        min_length=1,
        description=(
            "Folder on a local disk for copies of sidecars and of columns made from them, shared by all processes "
            "of the machine. Default: none, they are cached in memory only."
        ),
    )
    cache_dir_bytes: int = Field(
        default=8 << 30, ge=0, description="Largest size of the files in `cache_dir`, in bytes, over all processes."
    )
    page_cache_bytes: int = Field(
        default=64 << 20, ge=0, description="Memory for page statistics, in bytes per process."
    )
    page_files: int = Field(
        default=256,
        ge=0,
        description=(
            "Files that one request opens for the pages of segments without a page sidecar; blocks beyond that are "
            "answered whole."
        ),
    )
    page_sidecars: bool = Field(
        default=False, description="Build the page sidecar of new segments when their blocks are registered."
    )
    read_threads: int = Field(default=8, ge=1, le=256, description="Concurrent reads and prunes in a process.")
    large_answers: int = Field(
        default=4, ge=1, le=256, description="Concurrent answers of more than a megabyte in a process."
    )
    large_answers_waiting: int = Field(
        default=16,
        ge=0,
        description="Such answers that wait in a process; one more is answered with 429.",
    )
    answer_blocks_max: int = Field(
        default=250_000,
        ge=1,
        description=(
            "Most blocks (or runs of blocks, or segments) in one buffered answer: of a batch of prunes, a "
            "difference of snapshots, a page of changes. Each takes about half a KiB of memory."
        ),
    )
    answer_stall_s: float = Field(
        default=60.0,
        gt=0,
        description="How long a client may pause in reading a large answer before it is disconnected, in seconds.",
    )
    requests_at_once: int = Field(
        default=64,
        ge=1,
        le=10_000,
        description=("Concurrent read requests in a process, including those that wait for a thread."),
    )
    requests_waiting: int = Field(
        default=256,
        ge=0,
        le=100_000,
        description="Further read requests that wait in a process; one more is answered with 429.",
    )
    request_wait_s: float = Field(
        default=1.0,
        gt=0,
        le=3_600,
        description=(
            "How long a request waits to start, in seconds; then it is answered with 429. Also how long the look-up of "
            "its key may take; then it is answered with 503."
        ),
    )
    wide_prunes_at_once: int = Field(
        default=2,
        ge=1,
        le=256,
        description=(
            "Concurrent prunes that test many blocks in a process. Each keeps a core busy. They have separate "
            "slots and threads, so they do not take those of other requests."
        ),
    )
    wide_prunes_tests: int = Field(
        default=20_000_000,
        ge=1,
        description=(
            "Tests of block statistics in all such prunes, running and waiting, in a process, as "
            "estimated before they begin: about 0.1 microseconds each. One more is answered with 429, unless it comes "
            "alone."
        ),
    )
    changes_at_once: int = Field(
        default=2_048,
        ge=1,
        le=100_000,
        description="Concurrent requests that change something in a process; one more is answered with 429.",
    )
    request_deadline_s: float = Field(
        default=60.0,
        gt=0,
        le=86_400,
        description=(
            "How long a read request may take, from the end of its body to the start of its answer, in "
            "seconds; then it is answered with 503."
        ),
    )
    body_memory_bytes: int = Field(
        default=512 << 20,
        ge=1024,
        description="Request bodies in the memory of a process, in bytes; beyond it the answer is 429.",
    )
    connections_max: int = Field(
        default=10_000,
        ge=8,
        le=1_000_000,
        description=(
            "Open connections of a process. A new one beyond the limit closes the connection that has been idle for "
            "longest, or is refused if none is idle."
        ),
    )
    keep_alive_s: float = Field(
        default=5.0, gt=0, le=3_600, description="How long an idle connection stays open, in seconds."
    )
    header_timeout_s: float = Field(
        default=10.0, gt=0, le=3_600, description="How long the head of a request may take to arrive, in seconds."
    )
    header_bytes_max: int = Field(
        default=64 << 10,
        ge=1024,
        le=1 << 20,
        description=(
            "Largest head of a request (its first line and headers), in bytes; a larger one is answered with 431."
        ),
    )
    body_stall_s: float = Field(
        default=20.0,
        gt=0,
        le=3_600,
        description="Time in which a request body must deliver its next 64 KiB or its end, in seconds.",
    )
    slow_readers_max: int = Field(
        default=256,
        ge=1,
        le=100_000,
        description=(
            "Connections that read their answers slower than they are sent; with one more, the one that is behind for "
            "longest is closed."
        ),
    )
    quota_namespaces: int | None = Field(
        default=None, ge=0, description="Limit of namespaces. Default: none. See limits.md for quotas."
    )
    quota_tables: int | None = Field(
        default=None,
        ge=0,
        description=(
            "Tables of a namespace, unless its property `lamella.quota.tables` sets a limit. Default: any number."
        ),
    )
    quota_blocks: int | None = Field(
        default=None,
        ge=0,
        description=(
            "Blocks of all tables of a namespace together, unless its property `lamella.quota.blocks` sets a "
            "limit. Default: any number."
        ),
    )
    quota_bytes: int | None = Field(
        default=None,
        ge=0,
        description=(
            "Bytes of these blocks together, unless the property `lamella.quota.bytes` sets a limit. "
            "Default: any number."
        ),
    )
    quota_table_blocks: int | None = Field(default=None, ge=0, description="Blocks of a table. Default: any number.")
    quota_table_leases: int = Field(default=10_000, ge=1, description="Leases on snapshots of one table at a time.")
    table_health_share: float = Field(
        default=0.02,
        ge=0,
        le=1,
        description=(
            "Share of the time in which a process measures the health of tables after commits. 0: tables are measured "
            "only when their health is requested."
        ),
    )
    write_threads: int = Field(
        default=8,
        ge=1,
        le=256,
        description="Mutations that are prepared concurrently, and tables that are committed to "
        "concurrently, in a process.",
    )
    ingest_threads: int = Field(
        default=16,
        ge=1,
        le=256,
        description="Concurrent reads of footers and file sizes in one registration or commit.",
    )
    index_threads: int = Field(
        default=8, ge=1, le=256, description="Concurrent file reads in one refresh of a skip index."
    )
    index_refresh_blocks: int = Field(
        default=1_000,
        ge=1,
        le=1_000_000,
        description="Most blocks in one request to `.../refresh` of a skip index.",
    )
    commit_deadline_s: float = Field(
        default=60.0,
        gt=0,
        description=(
            "How long a registration or commit waits for its turn and retries if another process was faster, "
            "in seconds; then it is answered with 503."
        ),
    )
    commit_group: int = Field(
        default=256, ge=1, le=10_000, description="Most commits to one table that are merged into one snapshot."
    )
    commit_group_blocks: int = Field(
        default=10_000,
        ge=1,
        description="Blocks that the commits of one snapshot add and remove together; a larger commit "
        "gets a separate snapshot.",
    )
    commit_list_blocks: int = Field(
        default=1_000_000,
        ge=1,
        description=(
            "Most blocks that one commit adds in lists (`added_from`). Each list has at most `max_body_bytes`."
        ),
    )
    commit_lists_at_once: int = Field(
        default=2,
        ge=1,
        le=256,
        description="Commits with lists of blocks that are prepared concurrently in a process; others wait.",
    )
    commit_batch_wait_ms: float = Field(
        default=2.0,
        ge=0,
        le=1_000,
        description=(
            "How long a table's next snapshot waits for as many commits as the last one had, in milliseconds. A "
            "single commit never waits."
        ),
    )
    mutation_queue: int = Field(
        default=1_024,
        ge=1,
        description="Pending mutations of one table in a process; one more is answered with 429.",
    )
    mutation_queue_bytes: int = Field(
        default=256 << 20,
        ge=1024,
        description="Bodies of all pending mutations in a process, in bytes; beyond it the answer is 429.",
    )
    idempotency_ttl_s: int = Field(
        default=86_400, ge=60, description="How long an answer can be replayed by its `Idempotency-Key`, in seconds."
    )
    drop_grace_s: int = Field(
        default=604_800, ge=0, description="How long a dropped table can be undropped, at least, in seconds."
    )
    retention_max_age_s: int = Field(
        default=604_800,
        ge=0,
        description=(
            "How long a snapshot is kept after it ceased to be the current one, in seconds, unless "
            "the table's property "
            "`lamella.retention.max_age` says otherwise."
        ),
    )
    retention_min_snapshots: int = Field(
        default=1,
        ge=1,
        description=(
            "How many of a table's newest snapshots are kept whatever their age, unless its property "
            "`lamella.retention.min_snapshots` says otherwise."
        ),
    )
    vacuum_min_age_s: int = Field(
        default=259_200,
        ge=0,
        description=(
            "Younger objects, and snapshots that were current within this time, are never cleaned up, in "
            "seconds. Must be longer than any commit, job or unleased read takes."
        ),
    )
    vacuum_max_objects: int = Field(default=100_000, ge=1, description="Objects in one request to `.../vacuum`.")
    lease_max_s: int = Field(
        default=86_400, ge=1, description="Longest time that a lease is valid without being renewed, in seconds."
    )
    feedback: bool = Field(
        default=False,
        description=(
            "Accept and store readers' reports of blocks without a matching row, for tables whose property "
            "`lamella.feedback.enabled` is `true`."
        ),
    )
    feedback_facts: int = Field(
        default=100_000,
        ge=1,
        description="Most pairs of a filter and an empty block that are stored for a table.",
    )
    feedback_bytes: int = Field(
        default=8 << 20, ge=1024, description="Most bytes of such reports in the catalog for a table."
    )
    sample_rows: bool = Field(
        default=True,
        description=(
            "Answer samples of rows, for which the service reads data files, to whoever may read a table. `false`: it "
            "shows no rows, and files are read by clients alone."
        ),
    )
    sample_bytes_max: int = Field(
        default=64 << 20, ge=1, description="Most bytes of data files that one sample of rows reads."
    )
    record_prunes: Literal["off", "shape", "hashed", "full"] = Field(
        default="shape",
        description=(
            "What is recorded of filters for advice: `shape` without their constants, `hashed` with keyed hashes of "
            "them, `full` with them, `off` nothing. The table property `lamella.record_prunes` overrides it, but "
            "nothing is recorded if this is `off`."
        ),
    )
    recorded_filters: int = Field(default=500, ge=1, description="Most recorded filters of a table.")
    recorded_bytes: int = Field(
        default=1 << 20, ge=1024, description="Most bytes of recorded filters in the catalog for a table."
    )
    job_lease_max_s: int = Field(
        default=3_600,
        ge=1,
        description="Longest time that a worker may have a job without a heartbeat, in seconds.",
    )
    job_max_attempts: int = Field(
        default=3, ge=1, le=100, description="Most attempts of a job, unless the request says otherwise."
    )
    job_retry_s: float = Field(
        default=10.0,
        gt=0,
        description=(
            "Delay before the second attempt of a failed job, in seconds; it doubles with each further attempt."
        ),
    )
    job_retry_max_s: int = Field(default=3_600, ge=1, description="Longest such delay, in seconds.")
    job_log_lines: int = Field(default=1_000, ge=1, description="Lines of a job's log that are kept, the last ones.")
    job_value_bytes: int = Field(
        default=256 << 10,
        ge=1024,
        description="Largest size of a job's arguments, checkpoint, result and error each, in bytes of JSON.",
    )
    job_retention_s: int = Field(
        default=2_592_000, ge=0, description="How long a finished job is stored, at least, in seconds."
    )
    policy_check_s: int = Field(
        default=60, ge=1, description="Time between two checks of a table's policy, in seconds."
    )
    audit_retention_s: int = Field(
        default=7_776_000, ge=60, description="How long the audit trail keeps an entry, at least, in seconds."
    )
    page_size_max: int = Field(default=1_000, ge=1, le=100_000, description="Largest `page_size` of a listing.")
    token_secret: str | None = Field(
        default=None,
        min_length=16,
        repr=False,
        description=(
            "Signs page tokens; replicas with the same secret serve each other's pages. Default: a "
            "random one, stored in "
            "the catalog database that the replicas share."
        ),
    )
    catalog_timeout_s: float = Field(
        default=30.0, gt=0, description="How long a statement waits for a lock of the catalog database, in seconds."
    )
    ready_timeout_s: float = Field(
        default=3.0,
        gt=0,
        le=60,
        description=(
            "How long `/health/ready` and `/health/startup` wait for the catalog database and the warehouse, in "
            "seconds; then the answer is 503."
        ),
    )
    ready_write_interval_s: float = Field(
        default=10.0,
        ge=0,
        le=3_600,
        description=(
            "Shortest time between two test writes of `/health/ready` to the catalog database and the warehouse, "
            "in seconds and per process. 0: no test writes; then only commits notice a full disk."
        ),
    )
    drain_s: float = Field(
        default=2.0,
        ge=0,
        le=3_600,
        description=(
            "How long the service keeps serving after SIGTERM, no longer ready, so that proxies stop "
            "sending requests, in "
            "seconds."
        ),
    )
    shutdown_grace_s: int = Field(
        default=30, ge=0, description="How long running requests may take after that, in seconds."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest severity of log lines that are written."
    )
    log_format: Literal["json", "text"] = Field(default="json", description="One JSON object per line, or plain text.")
    log_requests: bool = Field(default=True, description="Write one log line for each request.")
    traces: bool = Field(
        default=False,
        description=(
            "Send OpenTelemetry traces by OTLP over HTTP, as the standard `OTEL_*` variables configure. Needs "
            "`lamella[telemetry]`."
        ),
    )

    @property
    def catalog_url(self) -> str:
        """Return the catalog's address, or its default.

        Raises:
            InvalidRequest: no ``catalog`` is set and the warehouse is not local.
        """
        if self.catalog is not None:
            return self.catalog
        location = parse(self.warehouse_url)
        if location.scheme == "file":
            return str(Path(location.path) / "_catalog.db")
        raise InvalidRequest(
            f"a warehouse on {location.scheme}:// needs a catalog of its own: set {ENV_PREFIX}CATALOG "
            "(a path for SQLite, or a postgresql+psycopg:// URL)"
        )

    def require_public_properties(self) -> None:
        """Raise InvalidRequest if ``iceberg_properties`` would show credentials to every reader."""
        bad = sorted(name for name in self.iceberg_properties if any(word in name.lower() for word in _SECRET_WORDS))
        if bad:
            raise InvalidRequest(f"iceberg_properties has names of secrets, which all readers would see: {bad}")

    def require_one_source_of_credentials(self) -> None:
        """Raise InvalidRequest for incomplete static keys, or if Iceberg clients would get two kinds of credentials."""
        if self.iceberg_static_keys and self.iceberg_role_arn is not None:
            raise InvalidRequest("set iceberg_static_keys or iceberg_role_arn, not both")
        for role, given in self.iceberg_static_keys.items():
            missing = sorted({"key", "secret"} - given.keys())
            if missing:
                raise InvalidRequest(f"iceberg_static_keys has no {missing[0]!r} for {role!r}")

    @property
    def warehouse_url(self) -> str:
        """Return the warehouse's location without a trailing slash. Raises InvalidRequest if it is not a location."""
        text = self.warehouse if ":" in self.warehouse else str(Path(self.warehouse).absolute())
        return normal(text).rstrip("/")

    @property
    def is_loopback(self) -> bool:
        """Return True if only this machine can reach ``host``; names other than ``localhost`` count as reachable."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False
