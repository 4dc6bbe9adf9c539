"""Every error that Lamella raises to its users, as one tree with stable codes.

::

    LamellaError
    ├── InvalidRequest              what was asked cannot be done as asked; nothing was changed
    │   ├── InvalidFilter           the filter cannot be read (carries ``position``)
    │   ├── FilterTypeMismatch      a literal can never be compared with that column
    │   ├── FilterNotEvaluable      a reader cannot decide a part of the filter (carries ``predicate``)
    │   ├── EvaluationFailed        a value that the filter needs cannot be computed (carries ``predicate``)
    │   ├── UnknownColumn           no such column in the snapshot's schema, or two that fit
    │   ├── InvalidSchema           a schema that breaks its own rules
    │   ├── SchemaMismatch          a file's schema does not fit the table's
    │   ├── ValueOutsideFile        a column's value stands only in a folder's name or a log (carries ``column``)
    │   ├── OtherTableFormat        files are another format's table (carries ``location``)
    │   ├── BlocksRefused           not one of the files could be registered (carries ``refused``)
    │   ├── BodyTooLarge            the request body is over the limit
    │   ├── HeadersTooLarge         the head of the request is over the limit
    │   ├── InvalidPageToken        not one of this service, or of another request
    │   ├── LocationRefused         a place that the table may not use (carries ``location``)
    │   ├── NotSignable             a place for which no URL can be signed (carries ``location``)
    │   ├── NotExpressible          the other protocol (Iceberg, Delta Sharing) has no way to say it
    │   ├── InvalidSettings         the service cannot be started like this (carries ``problems``)
    │   └── LimitExceeded           filter depth, nodes, list size, page size, ...
    ├── Unauthenticated             no key or token, or one that does not hold (any more)
    ├── PermissionDenied            known, but not allowed to do this (carries ``role``)
    ├── NotParquet                  not a Parquet file that can be trusted
    │   ├── TruncatedParquet        magic present, footer cut off or out of bounds
    │   ├── EncryptedParquet        encrypted footer or columns
    │   ├── CorruptParquet          a footer that contradicts itself
    │   └── BlockReplaced           not the file that the table's statistics come from
    ├── NotFound
    │   ├── NamespaceNotFound
    │   ├── TableNotFound
    │   ├── SnapshotNotFound
    │   │   └── SnapshotExpired     it was one, and is no longer in the history
    │   ├── TagNotFound
    │   ├── LeaseNotFound
    │   ├── SegmentNotFound
    │   ├── IndexNotFound
    │   ├── JobNotFound
    │   ├── PlanTaskNotFound        not a part of an Iceberg plan of that table (any more)
    │   ├── ScheduleNotFound
    │   ├── PolicyNotFound
    │   ├── KeyNotFound
    │   └── ObjectNotFound          a file that a path or a manifest names is not in the store
    ├── Conflict                    certainly not done, because of what is there already
    │   ├── AlreadyExists
    │   ├── NamespaceNotEmpty
    │   ├── DuplicateBlock
    │   ├── QuotaExceeded           there would be more than there may be (carries ``limit``)
    │   ├── CommitConflict          another commit won (carries ``blocks`` and ``snapshot_id``)
    │   │   └── NewMatches          blocks came that may match what the change rests on
    │   ├── BlocksGone              files of an old snapshot are not there as they were (carries ``blocks``)
    │   ├── NotAppendOnly           blocks were removed (carries ``snapshot_id`` and ``operation``)
    │   ├── SchemaConflict          the schema is not the one that was expected (carries ``schema_id``)
    │   ├── JobLeaseLost            the job is not this worker's any more
    │   ├── JobFinished             the job is over
    │   ├── JobRunning              a worker is at the job
    │   ├── JobCancelled            the job was told to end; what it committed stays
    │   └── IdempotencyMismatch     the key was used for another request
    ├── ManifestError               a manifest cannot be trusted
    │   ├── CatalogDamaged          a row of the catalog's database is not what was written
    │   ├── UnsupportedFormat       written by a newer Lamella
    │   └── HashMismatch            bytes differ from the recorded content hash
    ├── StoreError                  object storage failed or refused
    └── Unavailable                 try again later (carries ``retry_after_s``)
        ├── Overloaded              too much is waiting already; nothing was done
        │   └── RateLimited         this client asks too often; nothing was done
        ├── TooSlow                 the request did not come in time (carries ``limit``)
        ├── CatalogOutdated         the catalog's database is to be migrated first
        └── OutcomeUnknown          a mutation may or may not have happened; the idempotency key resolves it

``code`` is part of the API: it stands in problem documents, and the client rebuilds the same class from it.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

#: A longer message is cut and ends with an ellipsis.
MAX_MESSAGE_CHARACTERS: Final = 1_000


class LamellaError(Exception):
    """Base of all errors; ``details`` are JSON-ready members that name the place (column, position, blocks, ...)."""

    code: ClassVar[str] = "lamella_error"

    def __init__(self, message: str, **details: Any) -> None:
        if len(message) > MAX_MESSAGE_CHARACTERS:  # a message is for people: it does not repeat a whole hostile input
            message = message[:MAX_MESSAGE_CHARACTERS] + "…"
        super().__init__(message)
        self.message = message
        self.details = details

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.details)


def _rebuild(cls: type[LamellaError], message: str, details: dict[str, Any]) -> LamellaError:
    return cls(message, **details)


class InvalidRequest(LamellaError):
    """The request cannot be carried out as it stands."""

    code = "invalid_request"


class InvalidFilter(InvalidRequest):
    """The filter text or tree cannot be read; ``position`` is the 0-based offset in SQL, or a JSON path."""

    code = "invalid_filter"


class FilterTypeMismatch(InvalidRequest):
    """A literal that can never be compared with the column it stands beside."""

    code = "filter_type_mismatch"


class FilterNotEvaluable(InvalidRequest):
    """A part of the filter can be pruned by, or left alone, but not decided row by row; ``predicate`` names it."""

    code = "filter_not_evaluable"


class EvaluationFailed(InvalidRequest):
    """A row has a value that the filter cannot compute with: an overflow, a division by zero, a cast out of range.

    Also a JSON document of which it is not certain what Spark makes.
    """

    code = "evaluation_failed"


class UnknownColumn(InvalidRequest):
    """No column of that name, or an ambiguous one."""

    code = "unknown_column"


class InvalidSchema(InvalidRequest):
    """A schema with an unknown type, a doubled name or a doubled id."""

    code = "invalid_schema"


class SchemaMismatch(InvalidRequest):
    """A file's columns do not fit the table's schema."""

    code = "schema_mismatch"


class ValueOutsideFile(InvalidRequest):
    """A value that every row of a file should have, and that stands only in a folder's name, or in a table's log.

    ``column`` names the column; ``folder`` the folder (``year=2020``), where it is one.
    """

    code = "value_outside_file"


class OtherTableFormat(InvalidRequest):
    """Files below ``location`` are part of another format's table, and only its log tells which of them count."""

    code = "other_table_format"


class BlocksRefused(InvalidRequest):
    """No file of a registration could be taken; ``refused`` lists each with its reason."""

    code = "blocks_refused"


class BodyTooLarge(InvalidRequest):
    """The request body is larger than the service accepts."""

    code = "body_too_large"


class HeadersTooLarge(InvalidRequest):
    """The first line and the headers of the request are larger than the service accepts."""

    code = "headers_too_large"


class InvalidPageToken(InvalidRequest):
    """A page token that is not one of this service, was altered, or belongs to another request or snapshot."""

    code = "invalid_page_token"


class InvalidSettings(InvalidRequest):
    """Settings of a service that cannot be used; ``problems`` lists all that is wrong with them."""

    code = "invalid_settings"


class LocationRefused(InvalidRequest):
    """A place of the store that the table may not use, whatever is there; ``location`` names it."""

    code = "location_refused"


class NotSignable(InvalidRequest):
    """A place for which no URL can be signed: its store has none, or the service no credentials for it."""

    code = "not_signable"


class NotExpressible(InvalidRequest):
    """The table, or what is asked of it, is nothing that the client's protocol can say without wrong rows."""

    code = "not_expressible"


class LimitExceeded(InvalidRequest):
    """A size of the request (filter depth, nodes, list length, ...) is over its limit."""

    code = "limit_exceeded"


class Unauthenticated(LamellaError):
    """The request has no key or token, or one that does not hold; why is not told."""

    code = "unauthenticated"


class PermissionDenied(LamellaError):
    """The principal may not do this; ``role`` is what it would need. What it may not even see is not found instead."""

    code = "permission_denied"


class NotParquet(LamellaError):
    """The object is not a Parquet file."""

    code = "not_parquet"


class TruncatedParquet(NotParquet):
    """The footer is cut off or points outside the file."""

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


class NotFound(LamellaError):
    """What was named does not exist, or may not be seen."""

    code = "not_found"


class NamespaceNotFound(NotFound):
    """No such namespace."""

    code = "namespace_not_found"


class TableNotFound(NotFound):
    """No such table."""

    code = "table_not_found"


class SnapshotNotFound(NotFound):
    """No such snapshot in the table's history."""

    code = "snapshot_not_found"


class SnapshotExpired(SnapshotNotFound):
    """A snapshot that is no longer in the table's history."""

    code = "snapshot_expired"


class TagNotFound(NotFound):
    """No such tag of the table, or not any more."""

    code = "tag_not_found"


class LeaseNotFound(NotFound):
    """No such lease of the table, or it ran out."""

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
    """No such job, or it was over for so long that it was forgotten."""

    code = "job_not_found"


class ScheduleNotFound(NotFound):
    """No such schedule of the table."""

    code = "schedule_not_found"


class PolicyNotFound(NotFound):
    """The table has no policy."""

    code = "policy_not_found"


class KeyNotFound(NotFound):
    """No API key has the name."""

    code = "key_not_found"


class ObjectNotFound(NotFound):
    """No object at that location."""

    code = "object_not_found"


class Conflict(LamellaError):
    """Certainly not done, because of what is there already."""

    code = "conflict"


class AlreadyExists(Conflict):
    """A namespace or table of that name exists."""

    code = "already_exists"


class NamespaceNotEmpty(Conflict):
    """The namespace still holds tables."""

    code = "namespace_not_empty"


class DuplicateBlock(Conflict):
    """A block of that location is in the table already, or twice in one request."""

    code = "duplicate_block"


class QuotaExceeded(Conflict):
    """There would be more than the service, or the namespace, may have.

    ``limit`` names the quota, ``most`` is what it allows, ``used`` what there would be.
    """

    code = "quota_exceeded"


class CommitConflict(Conflict):
    """Blocks to be removed are no longer in the table; ``blocks`` names them, ``snapshot_id`` the winner."""

    code = "commit_conflict"


class NewMatches(CommitConflict):
    """Blocks were added that may hold rows which the change should have seen; ``blocks`` names them."""

    code = "new_matches"


class BlocksGone(Conflict):
    """Blocks of an older snapshot are missing, or are other files by now; ``blocks`` names them."""

    code = "blocks_gone"


class NotAppendOnly(Conflict):
    """Blocks were removed where a reader of appended rows wants none removed; ``snapshot_id`` is the first to do so."""

    code = "not_append_only"


class SchemaConflict(Conflict):
    """The table's schema is not the one that the change was made for; ``schema_id`` names the one there is."""

    code = "schema_conflict"


class JobLeaseLost(Conflict):
    """The job is not this worker's any more: its lease ran out, and another took the job over or nobody has it."""

    code = "job_lease_lost"


class JobFinished(Conflict):
    """The job is over, so that it cannot be cancelled, or succeeded, so that it cannot be tried again."""

    code = "job_finished"


class JobRunning(Conflict):
    """A worker is at the job; cancel it first."""

    code = "job_running"


class JobCancelled(Conflict):
    """The job was told to end before it was done; what it committed stays."""

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
    """The bytes read differ from the content hash recorded beside their location."""

    code = "hash_mismatch"


class StoreError(LamellaError):
    """Object storage failed, refused or answered nonsense."""

    code = "store_error"


class Unavailable(LamellaError):
    """The service cannot answer now; ``retry_after_s`` says when to try again."""

    code = "unavailable"


class Overloaded(Unavailable):
    """The service refused a request before it looked at it, since too many are waiting; nothing was done."""

    code = "overloaded"


class RateLimited(Overloaded):
    """The principal, or the address, has asked more often than it may; ``retry_after_s`` says when there is room."""

    code = "rate_limited"


class TooSlow(Unavailable):
    """The request did not come in the time that it has; ``limit`` says which part of it. Nothing was done."""

    code = "too_slow"


class CatalogOutdated(Unavailable):
    """The catalog has the schema of an earlier release; ``lamella catalog migrate`` changes that."""

    code = "catalog_outdated"


class OutcomeUnknown(Unavailable):
    """A mutation may have happened; ask again with the same idempotency key."""

    code = "outcome_unknown"


def _tree(cls: type[LamellaError]) -> dict[str, type[LamellaError]]:
    found = {cls.code: cls}
    for sub in cls.__subclasses__():
        found.update(_tree(sub))
    return found


#: Every class of the tree by its code.
BY_CODE: dict[str, type[LamellaError]] = _tree(LamellaError)


def from_code(code: str, message: str, details: dict[str, Any]) -> LamellaError:
    """The error of that ``code``; an unknown code (a newer service) becomes a plain :class:`LamellaError`."""
    return BY_CODE.get(code, LamellaError)(message, **details)
