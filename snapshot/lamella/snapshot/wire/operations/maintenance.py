"""Vacuum, leases and verification."""

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
    summary="Clean up a table, part by part",
    tag="Maintenance",
    description="Snapshots that retention does not keep expire, and objects in the table's folder that no "
    "snapshot needs are deleted, if they are old enough. Without `execute` it is only said what would be "
    "done. Each answer is a part; go on with its `next_page_token`. Repeating a part does no harm.",
    request_type=VacuumRequest,
    answer_type=VacuumAnswer,
    errors=(InvalidRequest, InvalidPageToken, *OF_A_TABLE, *_OF_MANIFESTS),
)

VACUUM_DROPPED: Final = Operation(
    name="vacuum_dropped",
    method="POST",
    path="/v1/vacuum-dropped",
    permission=on_server("maintain"),
    summary="Purge dropped tables whose grace is over",
    tag="Maintenance",
    description="Deletes what is in the folders of tables that were dropped longer than `drop_grace_s` "
    "ago, and forgets them. Without `execute` it is only said what would be done. While "
    "`next_page_token` is there, send the same request again.",
    request_type=VacuumRequest,
    answer_type=VacuumAnswer,
    errors=(InvalidRequest, *_OF_MANIFESTS),
)

TAKE_LEASE: Final = Operation(
    name="take_lease",
    method="POST",
    path=_LEASES,
    permission=on_table("read"),
    summary="Hold a snapshot while it is read",
    tag="Maintenance",
    description="The snapshot does not expire until the lease ends: by itself after `ttl_s` seconds, "
    "unless it is renewed, or when it is released.",
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
    description="One that is not there is no error.",
    answer_type=Nothing,
    status=204,
    errors=(*OF_A_TABLE, Unavailable),
)

VERIFY: Final = Operation(
    name="verify",
    method="POST",
    path=TABLE + "/verify",
    permission=on_table("read"),
    summary="Verify a table, and repair what is derived",
    tag="Maintenance",
    description="Holds manifests, sidecars, layers, the blocks' files and their footers against each "
    "other, and with `deep` the values of some blocks too. Each answer is a part of the work; ask again "
    "with `next_page_token` until there is none. With `repair` sidecars and page sidecars are written "
    "again where they are damaged; manifests and blocks never are.",
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
