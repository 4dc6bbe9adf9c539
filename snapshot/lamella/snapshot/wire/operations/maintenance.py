"""Vacuum, leases, verification, and the health of tables."""

from __future__ import annotations

from typing import Final

from lamella.snapshot.errors import (
    InvalidPageToken,
    InvalidRequest,
    LeaseNotFound,
    ManifestError,
    NamespaceNotFound,
    QuotaExceeded,
    SnapshotExpired,
    SnapshotNotFound,
    StoreError,
    TableNotFound,
    Unavailable,
)
from lamella.snapshot.wire import (
    LeaseInfo,
    LeaseList,
    LeaseRequest,
    RenewRequest,
    TableHealth,
    VacuumAnswer,
    VacuumRequest,
    VerifyAnswer,
    VerifyRequest,
)
from lamella.snapshot.wire.operation import OF_A_TABLE, TABLE, Nothing, Operation, on_server, on_table

_LEASES: Final = TABLE + "/leases"
_LEASE: Final = TABLE + "/leases/{lease_id}"

_OF_MANIFESTS: Final = (ManifestError, StoreError, Unavailable)

VACUUM: Final = Operation(
    name="vacuum",
    method="POST",
    path=TABLE + "/vacuum",
    permission=on_table("maintain"),
    summary="Vacuum a table, part by part",
    tag="Maintenance",
    description="Expires snapshots past their retention, and deletes objects in the table's folder that no snapshot "
    "needs, if they are old enough. Without `execute` the answer only lists what would be done. Each request does one "
    "part; continue with `next_page_token`. A part can safely be repeated.",
    request_type=VacuumRequest,
    answer_type=VacuumAnswer,
    errors=(InvalidRequest, InvalidPageToken, *OF_A_TABLE, *_OF_MANIFESTS),
)

VACUUM_DROPPED: Final = Operation(
    name="vacuum_dropped",
    method="POST",
    path="/v1/vacuum-dropped",
    permission=on_server("maintain"),
    summary="Purge dropped tables whose grace period is over",
    tag="Maintenance",
    description="Deletes tables that were dropped more than `drop_grace_s` seconds ago, with the contents of their "
    "folders. Without `execute` the answer only lists what would be done. Repeat the same request while the answer "
    "has `next_page_token`.",
    request_type=VacuumRequest,
    answer_type=VacuumAnswer,
    errors=(InvalidRequest, *_OF_MANIFESTS),
)

TAKE_LEASE: Final = Operation(
    name="take_lease",
    method="POST",
    path=_LEASES,
    permission=on_table("read"),
    summary="Take a lease on a snapshot",
    tag="Maintenance",
    description="The snapshot does not expire until the lease ends: after `ttl_s` seconds unless it is renewed, or "
    "when it is released.",
    request_type=LeaseRequest,
    answer_type=LeaseInfo,
    status=201,
    errors=(InvalidRequest, *OF_A_TABLE, SnapshotNotFound, SnapshotExpired, QuotaExceeded, Unavailable),
)

LIST_LEASES: Final = Operation(
    name="list_leases",
    method="GET",
    path=_LEASES,
    permission=on_table("maintain"),
    summary="List the leases of a table",
    tag="Maintenance",
    answer_type=LeaseList,
    errors=OF_A_TABLE,
)

RENEW_LEASE: Final = Operation(
    name="renew_lease",
    method="POST",
    path=_LEASE,
    permission=on_table("read"),
    summary="Renew a lease",
    tag="Maintenance",
    request_type=RenewRequest,
    answer_type=LeaseInfo,
    errors=(InvalidRequest, *OF_A_TABLE, LeaseNotFound, Unavailable),
    is_recorded=False,
)

RELEASE_LEASE: Final = Operation(
    name="release_lease",
    method="DELETE",
    path=_LEASE,
    permission=on_table("read"),
    summary="Release a lease",
    tag="Maintenance",
    description="No error if the lease does not exist.",
    answer_type=Nothing,
    status=204,
    errors=(*OF_A_TABLE, Unavailable),
)

TABLE_HEALTH: Final = Operation(
    name="table_health",
    method="GET",
    path=TABLE + "/health",
    permission=on_table("read"),
    summary="Show the health of a table",
    tag="Maintenance",
    description="Small blocks, the average depth of the cluster key, deleted rows, what indexes do not cover, and the "
    "bytes that a clean-up would free, with findings of what should be done. The service measures a table soon after a "
    "commit, in the background; the answer is what it knows, of the snapshot `snapshot_id`, after which there were "
    "`commits_since` more. Only the first request for a table that was never measured waits for that.",
    answer_type=TableHealth,
    errors=(*OF_A_TABLE, Unavailable),
)

VERIFY: Final = Operation(
    name="verify",
    method="POST",
    path=TABLE + "/verify",
    permission=on_table("read"),
    summary="Verify a table, and repair derived objects",
    tag="Maintenance",
    description="Compares manifests, sidecars, layers, the blocks' files and their footers with each other, and with "
    "`deep` the values of some blocks too. Each request does one part; repeat it with `next_page_token` until there "
    "is none. With `repair` damaged sidecars and page sidecars are written again; manifests and blocks are never "
    "changed.",
    request_type=VerifyRequest,
    answer_type=VerifyAnswer,
    errors=(
        InvalidRequest,
        InvalidPageToken,
        NamespaceNotFound,
        TableNotFound,
        SnapshotNotFound,
        StoreError,
    ),
)
