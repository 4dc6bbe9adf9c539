"""Settings of the service: environment variables ``LAMELLA_<NAME>``, or arguments of :class:`Settings`.

Every setting is described in ``docs/settings.md``; a test holds the two together.
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
#: In names of properties that are none of a reader's business.
_SECRET_WORDS = ("secret", "key", "token", "password", "credential", "connection-string", "sas", "sse")


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
    auto_migrate: bool | None = Field(
        default=None,
        description=(
            "Bring an older catalog to the schema of this release at the start; else `lamella catalog migrate` does. "
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
            "Properties that Iceberg clients are told with each table, as JSON: where storage is, such as "
            '`{"s3.endpoint": "https://s3.example", "s3.region": "eu-central-1"}`. Whoever may read a table sees them, '
            "so names of secrets are refused (with `secret`, `key`, `token`, `password`, `credential`, `sas`, ...)."
        ),
    )
    allowed_locations: dict[str, list[str]] | None = Field(
        default=None,
        description=(
            "Where files of tables may be beside their own folders: prefixes by namespace, and for `*` those of every "
            'namespace, as JSON: `{"*": ["s3://shared"], "sales": ["s3://sales/exports"]}`. Default: anywhere, with '
            "`auth` nowhere else. See data-access.md."
        ),
    )
    signed_url_s: int = Field(
        default=900, ge=1, le=604_800, description="How long a signed URL of a block can be used, in seconds."
    )
    signed_urls_max: int = Field(
        default=10_000,
        ge=1_000,  # readers ask for so many at once
        le=1_000_000,
        description="Blocks that one answer has signed URLs for, at most; larger answers are asked for in pages.",
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
        description="Ask every request for an API key or a token, and allow only what was granted. See access.md.",
    )
    root_key_sha256: str | None = Field(
        default=None,
        pattern=r"^[0-9a-f]{64}$",
        repr=False,
        description=(
            "SHA-256 of an API key that may do everything and is not in the catalog: the first one. `lamella keys new` "
            "makes both."
        ),
    )
    auth_cache_s: float = Field(
        default=5.0,
        ge=0,
        le=300,
        description="How long a replica may not notice that a key was revoked or a grant changed, in seconds.",
    )
    auth_failures_per_minute: int = Field(
        default=60, ge=1, description="Keys and tokens that do not hold, from one address; more are answered with 429."
    )
    oidc_issuer: str | None = Field(
        default=None,
        pattern=r"^https?://",
        description="Issuer of OpenID Connect tokens that are taken, as its `iss` says. Default: none.",
    )
    oidc_audience: str = Field(default="lamella", min_length=1, description="What `aud` of such a token must name.")
    oidc_keys_url: str | None = Field(
        default=None,
        pattern=r"^https?://",
        description="Where the issuer's keys (JWKS) are. Default: where its discovery document says.",
    )
    oidc_algorithms: tuple[str, ...] = Field(
        default=("RS256", "ES256"), description="Algorithms that tokens may be signed with, as JSON."
    )
    oidc_leeway_s: float = Field(
        default=30.0, ge=0, le=600, description="How far the issuer's clock may be off, in seconds."
    )
    oidc_subject_claim: str = Field(
        default="sub", min_length=1, description="The claim that names the user, to whom grants are given."
    )
    oidc_groups_claim: str = Field(
        default="groups",
        min_length=1,
        description="The claim that names the user's groups; `a.b` for one inside of another.",
    )
    oidc_client_id: str | None = Field(
        default=None,
        min_length=1,
        description="The dashboard's id at the issuer, to log in there. Default: by key only.",
    )
    oidc_client_secret: str | None = Field(
        default=None, repr=False, description="Its secret, if it has one; PKCE is used in any case."
    )
    public_url: str | None = Field(
        default=None,
        pattern=r"^https?://[^/]+(/.*)?$",
        description="What browsers call this service, for the issuer's way back: `https://lake.example.com`.",
    )
    session_s: int = Field(
        default=28_800, ge=60, description="How long a log-in to the dashboard lasts at most, in seconds."
    )
    public_metrics: bool = Field(default=False, description="Serve `/metrics` without a key although `auth` is on.")
    requests_per_s: float = Field(
        default=0.0,
        ge=0,
        description=(
            "Requests of one principal (without `auth`: of one address) in a second and process; more are answered "
            "with 429. 0: any number."
        ),
    )
    requests_burst_s: float = Field(
        default=5.0, gt=0, description="Of how many quiet seconds requests may come at once."
    )
    allowed_hosts: tuple[str, ...] = Field(
        default=(),
        description=(
            "Names by which this service may be asked for, as JSON. Default: any where `auth` or `insecure` is on, "
            "else addresses, and names without a dot."
        ),
    )
    trusted_proxies: str = Field(
        default="",
        description=(
            "Proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed: addresses and networks with commas "
            "between. Default: none."
        ),
    )
    tls_cert_file: str | None = Field(
        default=None, min_length=1, description="Certificate chain (PEM) to serve HTTPS with. Default: HTTP."
    )
    tls_key_file: str | None = Field(default=None, min_length=1, description="Its private key (PEM).")
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
            "Folder on a local disk for copies of sidecars and for columns made of them, shared by all processes "
            "of the machine. Default: none, they are kept in memory only."
        ),
    )
    cache_dir_bytes: int = Field(
        default=8 << 30, ge=0, description="Most that the files in `cache_dir` take, in bytes, over all processes."
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
    read_threads: int = Field(default=8, ge=1, le=256, description="Reads and prunes that run at once in a process.")
    large_answers: int = Field(
        default=4, ge=1, le=256, description="Answers of more than a megabyte that are sent at once in a process."
    )
    large_answers_waiting: int = Field(
        default=16,
        ge=0,
        description="Such answers that wait for their turn in a process; one more is answered with 429.",
    )
    answer_blocks_max: int = Field(
        default=250_000,
        ge=1,
        description=(
            "Blocks (or runs of blocks, or segments) in one answer that is made as a whole: of a batch of prunes, a "
            "difference of snapshots, a page of changes. Each takes about half a KiB meanwhile."
        ),
    )
    answer_stall_s: float = Field(
        default=60.0,
        gt=0,
        description="How long a client may take nothing of a large answer before it is cut off, in seconds.",
    )
    requests_at_once: int = Field(
        default=64,
        ge=1,
        le=10_000,
        description=(
            "Requests that only read which are at work at once in a process, those that wait for a thread among them."
        ),
    )
    requests_waiting: int = Field(
        default=256,
        ge=0,
        le=100_000,
        description="Further such requests that wait for a place in a process; one more is answered with 429.",
    )
    request_wait_s: float = Field(
        default=1.0,
        gt=0,
        le=3_600,
        description=(
            "How long a request waits to be begun, and for a place, in seconds; then it is answered with 429. So long, "
            "too, for its key to be looked up; then with 503."
        ),
    )
    wide_prunes_at_once: int = Field(
        default=2,
        ge=1,
        le=256,
        description=(
            "Prunes that test many blocks which are at work at once in a process. They keep a core busy each, and have "
            "places and threads of their own, so that they take none of other requests."
        ),
    )
    wide_prunes_tests: int = Field(
        default=20_000_000,
        ge=1,
        description=(
            "Tests of a block's statistics that all such prunes at work and waiting have to do in a process, as "
            "estimated before they begin: about 0.1 microseconds each. One more is answered with 429, unless it comes "
            "alone."
        ),
    )
    changes_at_once: int = Field(
        default=2_048,
        ge=1,
        le=100_000,
        description="Requests that change something which a process takes on at once; one more is answered with 429.",
    )
    request_deadline_s: float = Field(
        default=60.0,
        gt=0,
        le=86_400,
        description=(
            "How long a request that only reads may take, from the end of its body to the begin of its answer, in "
            "seconds; then it is answered with 503."
        ),
    )
    body_memory_bytes: int = Field(
        default=512 << 20,
        ge=1024,
        description="Bodies of requests that a process holds, in bytes; beyond it the answer is 429.",
    )
    connections_max: int = Field(
        default=10_000,
        ge=8,
        le=1_000_000,
        description=(
            "Connections that a process holds. One more ends the connection that has been without a request for "
            "longest, or is refused where there is none."
        ),
    )
    keep_alive_s: float = Field(
        default=5.0, gt=0, le=3_600, description="How long a connection stays open without a request, in seconds."
    )
    header_timeout_s: float = Field(
        default=10.0, gt=0, le=3_600, description="How long the head of a request may take to come, in seconds."
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
        description="Time in which a request's body must bring 64 KiB or its end, again and again, in seconds.",
    )
    slow_readers_max: int = Field(
        default=256,
        ge=1,
        le=100_000,
        description=(
            "Connections that take their answers slower than they are sent; with one more, the one that is behind for "
            "longest is cut off."
        ),
    )
    quota_namespaces: int | None = Field(
        default=None, ge=0, description="Namespaces that there may be. Default: any number. See limits.md for quotas."
    )
    quota_tables: int | None = Field(
        default=None,
        ge=0,
        description=(
            "Tables that a namespace may have, where its property `lamella.quota.tables` does not say. Default: any "
            "number."
        ),
    )
    quota_blocks: int | None = Field(
        default=None,
        ge=0,
        description=(
            "Blocks that the tables of a namespace may have together, where its property `lamella.quota.blocks` does "
            "not say. Default: any number."
        ),
    )
    quota_bytes: int | None = Field(
        default=None,
        ge=0,
        description=(
            "Bytes that these blocks may have together, where its property `lamella.quota.bytes` does not say. "
            "Default: any number."
        ),
    )
    quota_table_blocks: int | None = Field(
        default=None, ge=0, description="Blocks that a table may have. Default: any number."
    )
    quota_table_leases: int = Field(
        default=10_000, ge=1, description="Leases that may hold snapshots of one table at a time."
    )
    write_threads: int = Field(
        default=8,
        ge=1,
        le=256,
        description="Mutations that are prepared at once, and tables that are committed to at once, in a process.",
    )
    ingest_threads: int = Field(
        default=16, ge=1, le=256, description="Footers and file sizes that one registration or commit asks for at once."
    )
    index_threads: int = Field(
        default=8, ge=1, le=256, description="Files that one refresh of a skip index reads at once."
    )
    index_refresh_blocks: int = Field(
        default=1_000,
        ge=1,
        le=1_000_000,
        description="Blocks that one request to `.../refresh` of a skip index looks at, at most.",
    )
    commit_deadline_s: float = Field(
        default=60.0,
        gt=0,
        description=(
            "How long a registration or commit waits for its turn and is tried again when another process was faster, "
            "in seconds; then it is answered with 503."
        ),
    )
    commit_group: int = Field(
        default=256, ge=1, le=10_000, description="Commits to one table that are folded into one snapshot, at most."
    )
    commit_group_blocks: int = Field(
        default=10_000,
        ge=1,
        description="Blocks that the commits of one snapshot add and remove together; a larger commit goes alone.",
    )
    commit_list_blocks: int = Field(
        default=1_000_000,
        ge=1,
        description=(
            "Blocks that one commit brings in lists (`added_from`), at most. Each list has at most `max_body_bytes`."
        ),
    )
    commit_lists_at_once: int = Field(
        default=2,
        ge=1,
        le=256,
        description="Commits with lists of blocks that are prepared at once in a process; others wait for their turn.",
    )
    commit_linger_ms: float = Field(
        default=2.0,
        ge=0,
        le=1_000,
        description=(
            "How long a table's next snapshot waits for as many commits as the last one had, in milliseconds. A "
            "commit that comes alone never waits."
        ),
    )
    mutation_queue: int = Field(
        default=1_024,
        ge=1,
        description="Mutations of one table that a process takes on at once; one more is answered with 429.",
    )
    mutation_queue_bytes: int = Field(
        default=256 << 20,
        ge=1024,
        description="Bodies of all mutations that a process has taken on, in bytes; beyond it the answer is 429.",
    )
    idempotency_ttl_s: int = Field(
        default=86_400, ge=60, description="How long an answer can be replayed by its `Idempotency-Key`, in seconds."
    )
    drop_grace_s: int = Field(
        default=604_800, ge=0, description="How long a dropped table can be undropped at least, in seconds."
    )
    retention_max_age_s: int = Field(
        default=604_800,
        ge=0,
        description=(
            "How long a snapshot is kept after it ceased to be the current one, in seconds, where the table's property "
            "`lamella.retention.max_age` does not say."
        ),
    )
    retention_min_snapshots: int = Field(
        default=1,
        ge=1,
        description=(
            "How many of a table's newest snapshots are kept whatever their age, where its property "
            "`lamella.retention.min_snapshots` does not say."
        ),
    )
    vacuum_min_age_s: int = Field(
        default=259_200,
        ge=0,
        description=(
            "Objects that are younger, and snapshots that were current within this time, are never cleaned up, in "
            "seconds. Must be longer than any commit, job or unleased read takes."
        ),
    )
    vacuum_max_objects: int = Field(
        default=100_000, ge=1, description="Objects that one request to `.../vacuum` looks at."
    )
    lease_max_s: int = Field(
        default=86_400, ge=1, description="Longest time that a lease holds without being renewed, in seconds."
    )
    feedback: bool = Field(
        default=False,
        description=(
            "Take readers' reports of blocks without a matching row, and believe them, for tables whose property "
            "`lamella.feedback.enabled` is `true`."
        ),
    )
    feedback_facts: int = Field(
        default=100_000,
        ge=1,
        description="Pairs of a filter and an empty block that are remembered for a table, at most.",
    )
    feedback_bytes: int = Field(
        default=8 << 20, ge=1024, description="Bytes that such reports take in the catalog for a table, at most."
    )
    record_prunes: Literal["off", "shape", "hashed", "full"] = Field(
        default="shape",
        description=(
            "What is recorded of filters for advice: `shape` without their constants, `hashed` with keyed hashes of "
            "them, `full` with them, `off` nothing. Tables say otherwise by the property `lamella.record_prunes`, but "
            "nothing is recorded where this is `off`."
        ),
    )
    recorded_filters: int = Field(default=500, ge=1, description="Filters that are recorded for a table, at most.")
    recorded_bytes: int = Field(
        default=1 << 20, ge=1024, description="Bytes that they take in the catalog for a table, at most."
    )
    job_lease_max_s: int = Field(
        default=3_600,
        ge=1,
        description="Longest time for which a worker may have a job without a heartbeat, in seconds.",
    )
    job_max_attempts: int = Field(
        default=3, ge=1, le=100, description="How often a job is started at most, where nobody says otherwise."
    )
    job_retry_s: float = Field(
        default=10.0,
        gt=0,
        description=(
            "How long a job that failed waits for its second attempt, in seconds; twice as long for each one after."
        ),
    )
    job_retry_max_s: int = Field(default=3_600, ge=1, description="Longest such wait, in seconds.")
    job_log_lines: int = Field(default=1_000, ge=1, description="Lines of a job's log that are kept, the last ones.")
    job_value_bytes: int = Field(
        default=256 << 10,
        ge=1024,
        description="Bytes of JSON that each of a job's arguments, checkpoint, result and error may have.",
    )
    job_retention_s: int = Field(
        default=2_592_000, ge=0, description="How long a job that is over is remembered at least, in seconds."
    )
    policy_check_s: int = Field(
        default=60, ge=1, description="How long after its last check a table's policy is checked again, in seconds."
    )
    audit_retention_s: int = Field(
        default=7_776_000, ge=60, description="How long the audit trail keeps an entry at least, in seconds."
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
            "How often, at most, `/health/ready` has something written to the catalog database and to the warehouse, "
            "in seconds and per process. 0: never; then a full disk is noticed by commits only."
        ),
    )
    drain_s: float = Field(
        default=2.0,
        ge=0,
        le=3_600,
        description=(
            "How long the service goes on after SIGTERM, not ready any more, so that proxies send nothing new, in "
            "seconds."
        ),
    )
    shutdown_grace_s: int = Field(
        default=30, ge=0, description="How long running requests may take after that, in seconds."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe log line that is written."
    )
    log_format: Literal["json", "text"] = Field(default="json", description="One JSON object a line, or plain text.")
    log_requests: bool = Field(default=True, description="Write one log line for each request.")
    traces: bool = Field(
        default=False,
        description=(
            "Send OpenTelemetry traces by OTLP over HTTP, where and how the standard `OTEL_*` variables say. Needs "
            "`lamella[telemetry]`."
        ),
    )

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

    def require_public_properties(self) -> None:
        """Raise InvalidRequest when ``iceberg_properties`` would give credentials to every reader."""
        bad = sorted(name for name in self.iceberg_properties if any(word in name.lower() for word in _SECRET_WORDS))
        if bad:
            raise InvalidRequest(f"iceberg_properties has names of secrets, which all readers would see: {bad}")

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
