"""Policies of tables: jobs that are asked for when a table needs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from lamella.service.catalog import Catalog, PolicyRecord, RuleFired, StoredJson, TableRecord
from lamella.service.idempotency import Claim, Sealed
from lamella.service.metrics import Metrics
from lamella.service.settings import Settings
from lamella.service.upkeep.conditions import Conditions
from lamella.service.upkeep.job_values import LONGEST_S, MOST_PRIORITY, arguments_text, check_range, json_value, new_job
from lamella.service.upkeep.rules import findings_of
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.ids import Ids
from lamella.snapshot.jobs import check_arguments, job_kind_named
from lamella.snapshot.wire import Policy, PolicyInfo, Rule, RuleFinding

_POLICY: Final = StoredJson(Policy, "a policy")
_FINDINGS: Final = StoredJson(tuple[RuleFinding, ...], "the findings of a policy")
#: Ten years.
_LONGEST_EVERY_S: Final = 10 * 366 * 86_400
_LARGEST: Final = (1 << 53) - 1
_NOT_THRESHOLDS: Final = frozenset((*(field.name for field in msgspec.structs.fields(Rule)), "indexes"))


class Policies:
    """Keeps policies, and asks for what is due by them."""

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
        """Make or replace a table's policy; it is checked soon.

        Raises:
            InvalidRequest: a rule that is never due, arguments that its kind does not take, a number out of its range.
            TableNotFound: it was dropped meanwhile.
        """
        for field in msgspec.structs.fields(policy):
            rule = getattr(policy, field.name)
            if rule is not None:
                _check(field.name, rule)
        text = json_value("policy", policy, self._settings.job_value_bytes)
        now_ms = self._clock()
        self._catalog.put_policy(PolicyRecord(table_id=table.table_id, policy=text or "{}", updated_ms=now_ms))
        return PolicyInfo(policy=policy, updated_ms=now_ms)

    def get(self, table: TableRecord) -> PolicyInfo:
        """Raises PolicyNotFound."""
        record = self._catalog.policy(table.table_id)
        return PolicyInfo(
            policy=_POLICY.decode(record.policy),
            updated_ms=record.updated_ms,
            checked_ms=record.checked_ms or None,
            findings=tuple(_with_last(each, record.fired) for each in _FINDINGS.decode(record.findings)),
        )

    def drop(self, table: TableRecord, claim: Claim) -> Sealed:
        """Raises PolicyNotFound. Jobs that it asked for stay."""
        sealed = claim.seal(204)
        self._catalog.drop_policy(table.table_id, remember=sealed.stored)
        return sealed

    def check(self, record: PolicyRecord) -> list[str]:
        """Ask for the jobs that a policy's rules want now; the ids of those that are new.

        Nothing when another service is at it, or the policy changed meanwhile.

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
            raise InvalidRequest(f"{name} is a number from 1, not {value}", path=f"$.{kind}.{name}")
    if rule.every_s is not None:
        check_range(f"{kind}.every_s", rule.every_s, 1, _LONGEST_EVERY_S)
    if rule.timeout_s is not None:
        check_range(f"{kind}.timeout_s", rule.timeout_s, 1, LONGEST_S)
    check_range(f"{kind}.cool_down_s", rule.cool_down_s, 0, _LONGEST_EVERY_S)
    check_range(f"{kind}.priority", rule.priority, -MOST_PRIORITY, MOST_PRIORITY)
    arguments = dict(rule.arguments)
    if kind == "index_refresh":
        if "index" in arguments:
            raise InvalidRequest("name the indexes in `indexes`, not in the arguments", path=f"$.{kind}.arguments")
        arguments["index"] = "any"  # the rule itself puts in which
    check_arguments(job_kind_named(kind), arguments, root=f"$.{kind}.arguments")
