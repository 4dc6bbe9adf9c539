"""Every error that Lamella raises to its users, as one tree with stable codes.

::

    LamellaError
    ├── InvalidRequest              the request is invalid; nothing was changed
    │   ├── InvalidFilter           the filter cannot be read (carries ``position``)
    │   ├── FilterTypeMismatch      a literal can never be compared with that column
    │   ├── FilterNotEvaluable      a reader cannot decide a part of the filter (carries ``predicate``)
    │   ├── EvaluationFailed        a value that the filter needs cannot be computed (carries ``predicate``)
    │   ├── UnknownColumn           no such column in the snapshot's schema, or an ambiguous name
    │   ├── InvalidSchema           an inconsistent schema
    │   ├── SchemaMismatch          a file's schema does not fit the table's
    │   ├── ValueOutsideFile        only a folder's name or a log has a column's value (carries ``column``)
    │   ├── OtherTableFormat        files are another format's table (carries ``location``)
    │   ├── BlocksRefused           none of the files could be registered (carries ``refused``)
    │   ├── BodyTooLarge            the request body is over the limit
    │   ├── HeadersTooLarge         the head of the request is over the limit
    │   ├── InvalidPageToken        not issued by this service, or for another request
    │   ├── LocationRefused         a location that the table may not use (carries ``location``)
    │   ├── NotSignable             a location without signed URLs (carries ``location``)
    │   ├── ReaderFeatureMissing    the reader did not declare what the table needs (carries ``features``)
    │   ├── WriterFeatureMissing    the writer did not declare what the table needs (carries ``features``)
    │   ├── CheckViolation          a row for which a CHECK constraint is false (carries ``constraint``)
    │   ├── NotExpressible          the other protocol (Iceberg, Delta Sharing) cannot express it
    │   ├── InvalidSettings         invalid settings of the service (carries ``problems``)
    │   └── LimitExceeded           filter depth, nodes, list size, page size, ...
    ├── Unauthenticated             no key or token, or an invalid one
    ├── PermissionDenied            known, but not allowed to do this (carries ``role``)
    ├── NotParquet                  not a Parquet file that can be trusted
    │   ├── TruncatedParquet        magic present, footer cut off or out of bounds
    │   ├── EncryptedParquet        encrypted footer or columns
    │   ├── CorruptParquet          a footer that contradicts itself
    │   └── BlockReplaced           not the file that the table's statistics come from
    ├── CorruptDeletes              the list of a block's deleted rows cannot be trusted
    ├── NotFound
    │   ├── NamespaceNotFound
    │   ├── TableNotFound
    │   │   └── BranchNotFound
    │   ├── ViewNotFound
    │   ├── SnapshotNotFound
    │   │   └── SnapshotExpired     no longer in the history
    │   ├── TagNotFound
    │   ├── LeaseNotFound
    │   ├── SegmentNotFound
    │   ├── IndexNotFound
    │   ├── JobNotFound
    │   ├── PlanTaskNotFound        not a part of an Iceberg plan of that table
    │   ├── ScheduleNotFound
    │   ├── PolicyNotFound
    │   ├── KeyNotFound
    │   └── ObjectNotFound          a file that a path or a manifest names is not in the store
    ├── Conflict                    certainly not done, because of the current state
    │   ├── AlreadyExists
    │   ├── NamespaceNotEmpty
    │   ├── DuplicateBlock
    │   ├── QuotaExceeded           a quota would be exceeded (carries ``limit``)
    │   ├── CommitConflict          another commit won (carries ``blocks`` and ``snapshot_id``)
    │   │   ├── NewMatches          blocks were added that may match the change's condition
    │   │   ├── ReadConflict        what the change depends on may have changed (carries ``table``)
    │   │   └── TransactionConflict changes of a transaction conflict (carries ``conflicts``)
    │   ├── CommitRequirementFailed an Iceberg table is no longer as a commit requires
    │   ├── BlocksGone              files of an old snapshot are missing or replaced (carries ``blocks``)
    │   ├── DeletionPending         a clean-up will delete a file that was to be added (carries ``location``)
    │   ├── NotAppendOnly           blocks were removed (carries ``snapshot_id`` and ``operation``)
    │   ├── NotProven               statistics do not prove what a constraint requires of existing rows
    │   ├── SchemaConflict          the schema is not the expected one (carries ``schema_id``)
    │   ├── JobLeaseLost            the job no longer belongs to this worker
    │   ├── JobFinished             the job is finished
    │   ├── JobRunning              a worker is running the job
    │   ├── JobCancelled            the job was cancelled; what it committed stays
    │   └── IdempotencyMismatch     the key was used for another request
    ├── ManifestError               a manifest cannot be trusted
    │   ├── CatalogDamaged          a row of the catalog's database is damaged
    │   ├── UnsupportedFormat       written by a newer Lamella
    │   └── HashMismatch            bytes differ from the recorded content hash
    ├── StoreError                  object storage failed or refused
    └── Unavailable                 try again later (carries ``retry_after_s``)
        ├── Overloaded              too many requests are waiting; nothing was done
        │   └── RateLimited         this client sends too many requests; nothing was done
        ├── TooSlow                 the request was not received in time (carries ``limit``)
        ├── CatalogOutdated         the catalog's database must be migrated first
        └── OutcomeUnknown          a mutation may or may not have happened; the idempotency key resolves it

``code`` is part of the API: problem documents contain it, and the client rebuilds the class from it.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

#: A longer message is truncated and ends with an ellipsis.
MAX_MESSAGE_CHARACTERS: Final = 1_000


class LamellaError(Exception):
    """Base of all errors; ``details`` are JSON-ready members that give the context (column, position, blocks, ...)."""

    code: ClassVar[str] = "lamella_error"

    def __init__(self, message: str, **details: Any) -> None:
        if len(message) > MAX_MESSAGE_CHARACTERS:  # a message is for people: it does not repeat a whole hostile input
            message = message[:MAX_MESSAGE_CHARACTERS] + "…"
        super().__init__(message)
        self.message = message
        self.details = details

    def __str__(self) -> str:
        """Return the message, and the near name of ``details["did_you_mean"]`` if the error has one."""
        near = self.details.get("did_you_mean")
        return self.message if near is None else f"{self.message}; did you mean {near}?"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.details)


def _rebuild(cls: type[LamellaError], message: str, details: dict[str, Any]) -> LamellaError:
    return cls(message, **details)


class InvalidRequest(LamellaError):
    """The request cannot be executed as sent."""

    code = "invalid_request"


class PropertyConflict(InvalidRequest):
    """A request sets and removes the same property, which ``property`` names."""

    code = "property_conflict"


class InvalidFilter(InvalidRequest):
    """The filter text or tree cannot be read; ``position`` is the 0-based offset in SQL, or a JSON path."""

    code = "invalid_filter"


class FilterTypeMismatch(InvalidRequest):
    """A literal that can never be compared with its column."""

    code = "filter_type_mismatch"


class FilterNotEvaluable(InvalidRequest):
    """A part of the filter can be pruned by, or left alone, but not evaluated row by row; ``predicate`` names it."""

    code = "filter_not_evaluable"


class EvaluationFailed(InvalidRequest):
    """A row has a value that the filter cannot compute with: an overflow, a division by zero, a cast out of range.

    Also a JSON document that Spark might read differently.
    """

    code = "evaluation_failed"


class UnknownColumn(InvalidRequest):
    """No column of that name, or an ambiguous one."""

    code = "unknown_column"


class InvalidSchema(InvalidRequest):
    """A schema with an unknown type, a duplicate name or a duplicate id."""

    code = "invalid_schema"


class SchemaMismatch(InvalidRequest):
    """A file's columns do not fit the table's schema."""

    code = "schema_mismatch"


class ValueOutsideFile(InvalidRequest):
    """A value that every row of a file should have, but that only a folder's name or a table's log contains.

    ``column`` names the column; ``folder`` the folder (``year=2020``), if there is one.
    """

    code = "value_outside_file"


class OtherTableFormat(InvalidRequest):
    """Files below ``location`` are part of another format's table, and only its log tells which of them count."""

    code = "other_table_format"


class BlocksRefused(InvalidRequest):
    """No file of a registration was accepted; ``refused`` lists each with its reason."""

    code = "blocks_refused"


class BodyTooLarge(InvalidRequest):
    """The request body is larger than the service accepts."""

    code = "body_too_large"


class HeadersTooLarge(InvalidRequest):
    """The first line and the headers of the request are larger than the service accepts."""

    code = "headers_too_large"


class InvalidPageToken(InvalidRequest):
    """A page token that this service did not issue, that was altered, or that belongs to another request or
    snapshot."""

    code = "invalid_page_token"


class InvalidSettings(InvalidRequest):
    """Invalid settings of a service; ``problems`` lists all of them."""

    code = "invalid_settings"


class LocationRefused(InvalidRequest):
    """A location that the table may not use, whether it exists or not; ``location`` names it."""

    code = "location_refused"


class NotSignable(InvalidRequest):
    """A location without signed URLs: its store does not support them, or the service has no credentials for it."""

    code = "not_signable"


class ReaderFeatureMissing(InvalidRequest):
    """A request for blocks that did not declare a reader feature without which they give wrong rows.

    ``features`` names the missing ones; docs/reader-features.md describes them.
    """

    code = "reader_feature_missing"


class WriterFeatureMissing(InvalidRequest):
    """The table has constraints, and the request does not declare a feature that its writer needs for them.

    ``features`` names what is missing; nothing was changed.
    """

    code = "writer_feature_missing"


class CheckViolation(InvalidRequest):
    """A row violates a CHECK constraint or the length of a column; ``constraint`` or ``column`` names it. Nothing was
    changed."""

    code = "check_violation"


class NotExpressible(InvalidRequest):
    """The client's protocol cannot express the table, or the request, without wrong rows."""

    code = "not_expressible"


class LimitExceeded(InvalidRequest):
    """A size of the request (filter depth, nodes, list length, ...) is over its limit."""

    code = "limit_exceeded"


class Unauthenticated(LamellaError):
    """The request has no key or token, or an invalid one; the reason is not disclosed."""

    code = "unauthenticated"


class PermissionDenied(LamellaError):
    """The principal may not do this; ``role`` is what it would need. Objects that it may not even see are reported as
    not found."""

    code = "permission_denied"


class NotParquet(LamellaError):
    """The object is not a Parquet file."""

    code = "not_parquet"


class TruncatedParquet(NotParquet):
    """The footer is truncated or points outside the file."""

    code = "truncated_parquet"


class EncryptedParquet(NotParquet):
    """The footer or its columns are encrypted."""

    code = "encrypted_parquet"


class CorruptParquet(NotParquet):
    """The footer can be decoded but contradicts itself."""

    code = "corrupt_parquet"


class BlockReplaced(NotParquet):
    """The file at a block's location is not the one that the block was made of, or changed while it was read."""

    code = "block_replaced"


class CorruptDeletes(LamellaError):
    """The list of a block's deleted rows is damaged, or does not belong to the block."""

    code = "corrupt_deletes"


class NotFound(LamellaError):
    """The named object does not exist, or may not be seen."""

    code = "not_found"


class NamespaceNotFound(NotFound):
    """No such namespace."""

    code = "namespace_not_found"


class TableNotFound(NotFound):
    """No such table."""

    code = "table_not_found"


class BranchNotFound(TableNotFound):
    """No such branch of a table that there is."""

    code = "branch_not_found"


class ViewNotFound(NotFound):
    """No such view."""

    code = "view_not_found"


class SnapshotNotFound(NotFound):
    """No such snapshot in the table's history."""

    code = "snapshot_not_found"


class SnapshotExpired(SnapshotNotFound):
    """A snapshot that is no longer in the table's history."""

    code = "snapshot_expired"


class TagNotFound(NotFound):
    """No such tag of the table, or it has expired."""

    code = "tag_not_found"


class LeaseNotFound(NotFound):
    """No such lease of the table, or it has expired."""

    code = "lease_not_found"


class SegmentNotFound(NotFound):
    """No such segment in the snapshot."""

    code = "segment_not_found"


class IndexNotFound(NotFound):
    """No such skip index in the table."""

    code = "index_not_found"


class PlanTaskNotFound(NotFound):
    """Not a plan, or a part of one, of an Iceberg scan of that table; or its snapshot is no longer in the history."""

    code = "plan_task_not_found"


class JobNotFound(NotFound):
    """No such job, or it finished so long ago that it was deleted."""

    code = "job_not_found"


class ScheduleNotFound(NotFound):
    """No such schedule of the table."""

    code = "schedule_not_found"


class PolicyNotFound(NotFound):
    """The table has no policy."""

    code = "policy_not_found"


class ActionNotFound(NotFound):
    """The table has no such action of automatic upkeep."""

    code = "action_not_found"


class KeyNotFound(NotFound):
    """No API key has the name."""

    code = "key_not_found"


class ObjectNotFound(NotFound):
    """No object at that location."""

    code = "object_not_found"


class Conflict(LamellaError):
    """Certainly not done, because of the current state."""

    code = "conflict"


class AlreadyExists(Conflict):
    """An object of that name exists."""

    code = "already_exists"


class NamespaceNotEmpty(Conflict):
    """The namespace still has tables."""

    code = "namespace_not_empty"


class DuplicateBlock(Conflict):
    """A block of that location is already in the table, or occurs twice in one request."""

    code = "duplicate_block"


class QuotaExceeded(Conflict):
    """The request would exceed a quota of the service or the namespace.

    ``limit`` names the quota, ``most`` is its value, ``used`` the resulting use.
    """

    code = "quota_exceeded"


class CommitConflict(Conflict):
    """Blocks to be removed or changed are no longer in the table, or others changed the same rows; ``blocks`` names
    them, ``snapshot_id`` the commit that changed them."""

    code = "commit_conflict"


class NewMatches(CommitConflict):
    """Blocks were added that may contain rows which the change should have seen; ``blocks`` names them."""

    code = "new_matches"


class ReadConflict(CommitConflict):
    """Rows that a commit depends on may have changed since they were read; ``table`` names their table."""

    code = "read_conflict"


class TransactionConflict(CommitConflict):
    """Changes of a transaction conflict with commits of others; nothing was done. ``conflicts`` lists all of them: the
    table, and the code, message and details of the error that its change alone would have had."""

    code = "transaction_conflict"


class CommitRequirementFailed(Conflict):
    """An Iceberg table is no longer as a client's commit requires; nothing was done."""

    code = "commit_requirement_failed"


class BlocksGone(Conflict):
    """Blocks of an older snapshot are missing, or their files were replaced; ``blocks`` names them."""

    code = "blocks_gone"


class DeletionPending(Conflict):
    """A clean-up has marked a file for deletion that was to be added; ``location`` names it."""

    code = "deletion_pending"


class NotAppendOnly(Conflict):
    """Blocks were removed, but a reader of appended rows allows no removals; ``snapshot_id`` is the first snapshot that
    removed some."""

    code = "not_append_only"


class NotProven(Conflict):
    """The statistics do not prove that every row of the table satisfies a new constraint; ``column`` or ``constraint``
    names it. Nothing was changed."""

    code = "not_proven"


class SchemaConflict(Conflict):
    """The table's schema is not the one that the change was made for; ``schema_id`` names the current one."""

    code = "schema_conflict"


class JobLeaseLost(Conflict):
    """The job no longer belongs to this worker: its lease expired, and another worker took the job over or none has
    it."""

    code = "job_lease_lost"


class JobFinished(Conflict):
    """The job is finished and cannot be cancelled, or it succeeded and cannot be retried."""

    code = "job_finished"


class JobRunning(Conflict):
    """A worker is running the job; cancel it first."""

    code = "job_running"


class JobCancelled(Conflict):
    """The job was cancelled before it was done; what it committed stays."""

    code = "job_cancelled"


class IdempotencyMismatch(Conflict):
    """The idempotency key belongs to a different request."""

    code = "idempotency_mismatch"


class ManifestError(LamellaError):
    """A manifest or sidecar cannot be trusted."""

    code = "manifest_error"


class CatalogDamaged(ManifestError):
    """A row of the catalog's database, or the database itself, is damaged (carries ``what``)."""

    code = "catalog_damaged"


class UnsupportedFormat(ManifestError):
    """The manifest's format version is newer than this release reads."""

    code = "unsupported_format"


class HashMismatch(ManifestError):
    """The bytes read differ from the content hash recorded with their location."""

    code = "hash_mismatch"


class StoreError(LamellaError):
    """Object storage failed, refused a request or returned an invalid answer."""

    code = "store_error"


class Unavailable(LamellaError):
    """The service cannot answer now; ``retry_after_s`` says when to try again."""

    code = "unavailable"


class Overloaded(Unavailable):
    """The service refused a request without processing it, since too many are waiting; nothing was done."""

    code = "overloaded"


class RateLimited(Overloaded):
    """The principal, or the address, sent requests faster than allowed; ``retry_after_s`` says when the next one is
    accepted."""

    code = "rate_limited"


class TooSlow(Unavailable):
    """The request was not received within its time limit; ``limit`` names the part. Nothing was done."""

    code = "too_slow"


class CatalogOutdated(Unavailable):
    """The catalog has the schema of an earlier release; ``lamella catalog migrate`` upgrades it."""

    code = "catalog_outdated"


class OutcomeUnknown(Unavailable):
    """A mutation may have happened; repeat the request with the same idempotency key."""

    code = "outcome_unknown"


def _tree(cls: type[LamellaError]) -> dict[str, type[LamellaError]]:
    found = {cls.code: cls}
    for sub in cls.__subclasses__():
        found.update(_tree(sub))
    return found


#: Every class of the tree by its code.
BY_CODE: dict[str, type[LamellaError]] = _tree(LamellaError)


def from_code(code: str, message: str, details: dict[str, Any]) -> LamellaError:
    """Returns the error with a code; an unknown code (a newer service) becomes a plain :class:`LamellaError`."""
    return BY_CODE.get(code, LamellaError)(message, **details)
