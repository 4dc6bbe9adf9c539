"""Policies of tables: rules on a table's state, and the jobs that they add."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, Protocol

import msgspec
from msgspec.structs import replace

from lamella.service.catalog import Catalog, PolicyRecord, RuleFired, StoredJson, TableRecord
from lamella.service.config.settings import Settings
from lamella.service.history.history import trusted_manifests
from lamella.service.http.idempotency import IdempotencyKey, StoredResponse
from lamella.service.jobs.queue import LONGEST_S, MAX_PRIORITY, arguments_text, check_range, json_value, new_job
from lamella.service.tables.names import require_table
from lamella.service.telemetry.metrics import Metrics
from lamella.snapshot.advice.auto import check_rule
from lamella.snapshot.errors import InvalidRequest, LamellaError
from lamella.snapshot.ids import Ids
from lamella.snapshot.job_kinds import check_arguments, job_kind_named
from lamella.snapshot.warehouse import PURGE_SHARE, Warehouse
from lamella.snapshot.wire import AutoRule, Policy, PolicyInfo, Rule, RuleFinding, TableHealth


class Measurements(msgspec.Struct, frozen=True):
    """A measured value of a table, or None and the reason."""

    value: float | None
    reason: str = ""


class Conditions(Protocol):
    """Measures one value at a time, when a rule needs it. All may raise ManifestError, StoreError and Unavailable."""

    def small_blocks(self, table: TableRecord, /) -> Measurements:
        """Return the number of blocks that compaction would rewrite."""
        ...

    def average_depth(self, table: TableRecord, /) -> Measurements:
        """Return the average number of blocks that contain a value of the cluster key."""
        ...

    def blocks_with_deletes(self, table: TableRecord, min_deleted_share: float | None, /) -> Measurements:
        """Return the number of blocks that a purge would rewrite."""
        ...

    def indexes(self, table: TableRecord, /) -> list[str]:
        """Return the names of the indexes in use."""
        ...

    def not_indexed_blocks(self, table: TableRecord, index: str, /) -> Measurements:
        """Return the number of blocks that an index does not cover."""
        ...

    def snapshots(self, table: TableRecord, at_most: int, /) -> Measurements:
        """Return the number of snapshots in the history; the count stops at ``at_most``."""
        ...


class SnapshotConditions:
    """Measures by the table's summaries, its indexes and its history.

    ``depth`` returns the average depth on a table's cluster key; None for a table without a key.
    """

    def __init__(
        self,
        catalog: Catalog,
        warehouse: Warehouse,
        depth: Callable[[TableRecord], float | None],
    ) -> None:
        self._catalog = catalog
        self._warehouse = warehouse
        self._depth = depth

    def small_blocks(self, table: TableRecord) -> Measurements:
        """Count by the snapshot's summary, or by its blocks if the table has a block size of its own."""
        with trusted_manifests():
            return Measurements(self._warehouse.planning.imperfect_blocks(table.pointer))

    def average_depth(self, table: TableRecord) -> Measurements:
        """Call ``depth``."""
        found = self._depth(table)
        return Measurements(found) if found is not None else Measurements(None, "the table has no cluster key")

    def blocks_with_deletes(self, table: TableRecord, min_deleted_share: float | None) -> Measurements:
        """Count by the sidecars of all segments, if the snapshot's summary says that rows are deleted."""
        share = PURGE_SHARE if min_deleted_share is None else min_deleted_share
        with trusted_manifests():
            return Measurements(self._warehouse.planning.blocks_to_purge(table.pointer, share))

    def indexes(self, table: TableRecord) -> list[str]:
        """Read the head of the snapshot."""
        with trusted_manifests():
            return [
                index.name for index in self._warehouse.head(table.pointer).skip_indexes if index.dropped_ms is None
            ]

    def not_indexed_blocks(self, table: TableRecord, index: str) -> Measurements:
        """Read the index's directories and the sidecars of all segments."""
        with trusted_manifests():
            found = [each for each in self._warehouse.head(table.pointer).skip_indexes if each.name == index]
            if not found:
                return Measurements(None, "there is no such index")
            (coverage,) = self._warehouse.index_blocks.coverage(table.pointer, found)
        return Measurements(coverage.not_indexed)

    def snapshots(self, table: TableRecord, at_most: int) -> Measurements:
        """Ask the catalog."""
        return Measurements(len(self._catalog.history(table.table_id, limit=at_most)))


class StoredConditions:
    """Takes values from the stored health of a table, if that is of its current snapshot, and measures only otherwise:
    a pass over thousands of tables then reads no manifests. These values depend on nothing but the snapshot.

    ``stale`` is called with the id of a table without such health, to have it measured in the background.
    """

    def __init__(self, catalog: Catalog, measured: Conditions, stale: Callable[[str], None]) -> None:
        self._catalog = catalog
        self._measured = measured
        self._stale = stale

    def small_blocks(self, table: TableRecord) -> Measurements:
        """Return the stored number."""
        health = self._health(table)
        if health is None or health.small_blocks is None:
            return self._measured.small_blocks(table)
        return Measurements(health.small_blocks)

    def average_depth(self, table: TableRecord) -> Measurements:
        """Return the stored depth; a table without a key has none."""
        health = self._health(table)
        if health is None or health.average_depth is None:
            return self._measured.average_depth(table)
        return Measurements(health.average_depth)

    def blocks_with_deletes(self, table: TableRecord, min_deleted_share: float | None) -> Measurements:
        """Return the stored number, which is of the default share, or of a table without deleted rows."""
        health = self._health(table)
        if health is not None and health.deletes_count == 0:
            return Measurements(0)
        if health is None or health.blocks_to_purge is None or min_deleted_share not in (None, PURGE_SHARE):
            return self._measured.blocks_with_deletes(table, min_deleted_share)
        return Measurements(health.blocks_to_purge)

    def indexes(self, table: TableRecord) -> list[str]:
        """Return the stored names."""
        health = self._health(table)
        if health is None or "indexes" in health.missing:
            return self._measured.indexes(table)
        return [each.name for each in health.indexes]

    def not_indexed_blocks(self, table: TableRecord, index: str) -> Measurements:
        """Return the stored number."""
        health = self._health(table)
        found = None if health is None else next((each for each in health.indexes if each.name == index), None)
        return self._measured.not_indexed_blocks(table, index) if found is None else Measurements(found.not_indexed)

    def snapshots(self, table: TableRecord, at_most: int) -> Measurements:
        """Ask the catalog: the history changes without a new snapshot."""
        return self._measured.snapshots(table, at_most)

    def _health(self, table: TableRecord) -> TableHealth | None:
        """Return the stored health if it is of the current snapshot."""
        text = self._catalog.table_health(table.table_id)
        try:
            health = None if text is None else msgspec.json.decode(text, type=TableHealth)
        except msgspec.MsgspecError:  # another release has stored it
            health = None
        if health is None or health.snapshot_id != table.pointer.snapshot_id:
            self._stale(table.table_id)
            return None
        return health


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One decision of a policy: add a job of ``kind`` if ``measure`` returns ``threshold`` or more.

    ``key`` identifies it among earlier requests of rules. ``what`` names the value. ``measure`` is called only if
    nothing else decides.
    """

    key: str
    kind: str
    rule: Rule
    arguments: dict[str, Any]
    what: str = ""
    threshold: float | None = None
    measure: Callable[[], Measurements] = lambda: Measurements(None)


def cases_of(policy: Policy, table: TableRecord, conditions: Conditions) -> Iterator[Case]:
    """Yield the decisions of a policy for a table. Raises as ``conditions`` does."""
    if policy.compact is not None:
        yield Case(
            key="compact",
            kind="compact",
            rule=policy.compact,
            arguments=policy.compact.arguments,
            what="small blocks",
            threshold=policy.compact.small_blocks,
            measure=partial(conditions.small_blocks, table),
        )
    if policy.recluster is not None:
        yield Case(
            key="recluster",
            kind="recluster",
            rule=policy.recluster,
            arguments=policy.recluster.arguments,
            what="average depth",
            threshold=policy.recluster.average_depth,
            measure=partial(conditions.average_depth, table),
        )
    if policy.purge is not None:
        yield Case(
            key="purge",
            kind="purge",
            rule=policy.purge,
            arguments=policy.purge.arguments,
            what="blocks with deleted rows",
            threshold=policy.purge.blocks_with_deletes,
            measure=partial(conditions.blocks_with_deletes, table, policy.purge.arguments.get("min_deleted_share")),
        )
    if policy.index_refresh is not None:
        for index in conditions.indexes(table):
            if policy.index_refresh.indexes is None or index in policy.index_refresh.indexes:
                yield Case(
                    key=f"index_refresh:{index}",
                    kind="index_refresh",
                    rule=policy.index_refresh,
                    arguments={**policy.index_refresh.arguments, "index": index},
                    what="blocks that are not indexed",
                    threshold=policy.index_refresh.not_indexed_blocks,
                    measure=partial(conditions.not_indexed_blocks, table, index),
                )
    if policy.vacuum is not None:
        yield Case(
            key="vacuum",
            kind="vacuum",
            rule=policy.vacuum,
            arguments=policy.vacuum.arguments,
            what="snapshots",
            threshold=policy.vacuum.snapshots,
            measure=partial(conditions.snapshots, table, policy.vacuum.snapshots or 0),
        )
    auto = None if policy.auto is None or policy.auto.dry_run else policy.auto
    by_time = {"regroup": policy.regroup, "verify": policy.verify, "refresh": policy.refresh, "auto": auto}
    for kind, rule in by_time.items():
        if rule is not None:
            yield Case(key=kind, kind=kind, rule=rule, arguments=rule.arguments)


def findings_of(
    policy: Policy, table: TableRecord, conditions: Conditions, fired: Mapping[str, RuleFired], now_ms: int
) -> list[tuple[Case, RuleFinding]]:
    """Return what each rule decides now; ``fired``: when rules last requested a job.

    A value that cannot be measured decides nothing, and its finding says so.

    Raises ManifestError, StoreError, Unavailable: the table's indexes cannot be read.
    """
    return [(case, _find(case, fired.get(case.key), now_ms)) for case in cases_of(policy, table, conditions)]


def _find(case: Case, last: RuleFired | None, now_ms: int) -> RuleFinding:
    due, reason, measured = _decide(case, last, now_ms)
    return RuleFinding(rule=case.key, due=due, reason=reason, measured=measured, threshold=case.threshold)


def _decide(case: Case, last: RuleFired | None, now_ms: int) -> tuple[bool, str, float | None]:
    """Return whether a case is due, the reason, and the measured value."""
    since_ms = None if last is None else now_ms - last.at_ms
    rule = case.rule
    if since_ms is not None and since_ms < rule.cool_down_s * 1000:
        return False, f"requested less than {rule.cool_down_s} s ago", None
    if rule.every_s is not None and (since_ms is None or since_ms >= rule.every_s * 1000):
        return True, f"every {rule.every_s} s", None
    if case.threshold is None:
        return False, f"last requested less than {rule.every_s} s ago", None
    try:
        found = case.measure()
    except LamellaError as error:
        return False, f"could not be measured: {error.message}", None
    if found.value is None:
        return False, f"could not be measured: {found.reason}", None
    if found.value >= case.threshold:
        return True, f"{found.value:g} {case.what}, {case.threshold:g} or more", found.value
    return False, f"{found.value:g} {case.what}, fewer than {case.threshold:g}", found.value


_POLICY: Final = StoredJson(Policy, "a policy")
_FINDINGS: Final = StoredJson(tuple[RuleFinding, ...], "the findings of a policy")
#: Ten years.
_LONGEST_EVERY_S: Final = 10 * 366 * 86_400
_LARGEST: Final = (1 << 53) - 1
_NOT_THRESHOLDS: Final = frozenset((*(field.name for field in msgspec.structs.fields(Rule)), "indexes"))


class Policies:
    """Stores policies, and adds the jobs that they request."""

    def __init__(
        self,
        catalog: Catalog,
        conditions: Conditions,
        metrics: Metrics,
        ids: Ids,
        clock: Callable[[], int],
        settings: Settings,
    ) -> None:
        self._catalog = catalog
        self._conditions = conditions
        self._metrics = metrics
        self._ids = ids
        self._clock = clock
        self._settings = settings

    def put(self, table: TableRecord, policy: Policy) -> PolicyInfo:
        """Create or replace a table's policy; it is checked soon.

        Raises:
            InvalidRequest: a rule that is never due, arguments that its kind does not take, a number out of its range.
            TableNotFound: it was dropped meanwhile.
        """
        require_table(table.name)
        for field in msgspec.structs.fields(policy):
            rule = getattr(policy, field.name)
            if rule is not None:
                _check(field.name, rule)
        text = json_value("policy", policy, self._settings.job_value_bytes)
        now_ms = self._clock()
        self._catalog.put_policy(PolicyRecord(table_id=table.table_id, policy=text or "{}", updated_ms=now_ms))
        return PolicyInfo(policy=policy, updated_ms=now_ms)

    def get(self, table: TableRecord) -> PolicyInfo:
        """Return a table's policy. Raises PolicyNotFound."""
        record = self._catalog.policy(table.table_id)
        return PolicyInfo(
            policy=_POLICY.decode(record.policy),
            updated_ms=record.updated_ms,
            checked_ms=record.checked_ms or None,
            findings=tuple(_with_last(each, record.fired) for each in _FINDINGS.decode(record.findings)),
        )

    def drop(self, table: TableRecord, idempotency_key: IdempotencyKey) -> StoredResponse:
        """Delete a table's policy; the jobs that it added stay. Raises PolicyNotFound."""
        stored_response = idempotency_key.store_as(204)
        self._catalog.drop_policy(table.table_id, remember=stored_response.stored)
        return stored_response

    def check(self, record: PolicyRecord) -> list[str]:
        """Add the jobs that a policy's rules request now; return the ids of the new ones.

        Adds nothing if another service checks the policy, or it changed meanwhile.

        Raises TableNotFound, ManifestError, StoreError, Unavailable; the policy is checked again next time.
        """
        now_ms = self._clock()
        if not self._catalog.begin_check(record, now_ms=now_ms):
            return []
        table = self._catalog.table_by_id(record.table_id)
        found = findings_of(_POLICY.decode(record.policy), table, self._conditions, record.fired, now_ms)
        jobs = {
            case.key: new_job(
                str(self._ids.new()),
                job_kind_named(case.kind),
                table,
                arguments_text(check_arguments(job_kind_named(case.kind), case.arguments)),
                origin="policy",
                now_ms=now_ms,
                max_attempts=self._settings.job_max_attempts,
                origin_name=case.key[:255],
                priority=case.rule.priority,
                timeout_s=case.rule.timeout_s,
            )
            for case, finding in found
            if finding.due
        }
        findings = msgspec.json.encode([finding for _, finding in found]).decode()
        done = self._catalog.end_check(record.table_id, began_ms=now_ms, findings=findings, jobs=jobs)
        fresh = [key for key, each in done.items() if each.is_new]
        for key in fresh:
            self._metrics.job_enqueued(jobs[key].kind, "policy")
        return [done[key].job_id for key in fresh]


def _with_last(finding: RuleFinding, fired: Mapping[str, RuleFired]) -> RuleFinding:
    last = fired.get(finding.rule)
    return finding if last is None else replace(finding, last_ms=last.at_ms, last_job_id=last.job_id)


def _check(kind: str, rule: Rule) -> None:
    if isinstance(rule, AutoRule):
        check_rule(rule)
        thresholds = {}
    else:
        thresholds = {
            field.name: getattr(rule, field.name)
            for field in msgspec.structs.fields(rule)
            if field.name not in _NOT_THRESHOLDS
        }
    if rule.every_s is None and all(value is None for value in thresholds.values()):
        wanted = " or ".join([*thresholds, "every_s"])
        raise InvalidRequest(f"the rule {kind} is never due: give it {wanted}", path=f"$.{kind}")
    for name, value in thresholds.items():
        if value is not None and not 1 <= value <= _LARGEST:
            raise InvalidRequest(f"{name} must be a number from 1, not {value}", path=f"$.{kind}.{name}")
    if rule.every_s is not None:
        check_range(f"{kind}.every_s", rule.every_s, 1, _LONGEST_EVERY_S)
    if rule.timeout_s is not None:
        check_range(f"{kind}.timeout_s", rule.timeout_s, 1, LONGEST_S)
    check_range(f"{kind}.cool_down_s", rule.cool_down_s, 0, _LONGEST_EVERY_S)
    check_range(f"{kind}.priority", rule.priority, -MAX_PRIORITY, MAX_PRIORITY)
    arguments = dict(rule.arguments)
    if kind == "index_refresh":
        if "index" in arguments:
            raise InvalidRequest("name the indexes in `indexes`, not in the arguments", path=f"$.{kind}.arguments")
        arguments["index"] = "any"  # the rule itself adds the index
    check_arguments(job_kind_named(kind), arguments, root=f"$.{kind}.arguments")
