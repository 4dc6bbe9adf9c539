"""The upkeep of a table: its policy and its schedules, and forms that change them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.catalog import Catalog, TableRecord
from lamella.service.dashboard.job_fields import (
    EXECUTE,
    Field,
    fields_of,
    filled,
    has_execute,
    texts_of,
    whole_number,
    with_problem,
)
from lamella.service.dashboard.pages import Page, Pages, link, table_of, text_of
from lamella.service.dashboard.preview import Question, fact
from lamella.service.dashboard.tables import TABLE
from lamella.service.http.problem import status_of
from lamella.service.jobs.policies import Policies
from lamella.service.jobs.queue import require_new_job
from lamella.service.jobs.schedules import Schedules
from lamella.service.process.threads import Threads
from lamella.snapshot.errors import Conflict, InvalidRequest, LamellaError, PolicyNotFound
from lamella.snapshot.job_kinds import JobKind, job_kind_named, job_kinds
from lamella.snapshot.wire import (
    CompactRule,
    IndexRefreshRule,
    Policy,
    PolicyInfo,
    PurgeRule,
    PutSchedule,
    ReclusterRule,
    Rule,
    ScheduleInfo,
    VacuumRule,
)
from lamella.snapshot.wire.operation import on_table

_UPKEEP: Final = TABLE + "/upkeep"
_SCHEDULE: Final = _UPKEEP + "/schedule"
_DAY_S: Final = 86_400
_DURATION: Final = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)\s*(s|sec|min|m|h|hours?|d|days?|w|weeks?)?", re.ASCII)
_DURATION_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": _DAY_S, "w": 7 * _DAY_S}


class _RuleKind(msgspec.Struct, frozen=True):
    """A rule that a policy can have: its job, its threshold if it has one, and when it is due in words."""

    job: str
    rule: type[Rule]
    threshold: str
    says: str


_RULES: Final = (
    _RuleKind("compact", CompactRule, "small_blocks", "blocks are too small or too large"),
    _RuleKind("recluster", ReclusterRule, "average_depth", "blocks contain a value of the cluster key, on average"),
    _RuleKind("purge", PurgeRule, "blocks_with_deletes", "blocks have many deleted rows"),
    _RuleKind("index_refresh", IndexRefreshRule, "not_indexed_blocks", "blocks are not in an index"),
    _RuleKind("vacuum", VacuumRule, "snapshots", "snapshots are in the history"),
    _RuleKind("regroup", Rule, "", ""),
    _RuleKind("verify", Rule, "", ""),
    _RuleKind("refresh", Rule, "", ""),
)
#: What "Keep this table in shape" adds where the policy has no such rule. No rule of it deletes what can be read.
PRESET: Final = Policy(
    compact=CompactRule(small_blocks=20),
    recluster=ReclusterRule(average_depth=4),
    purge=PurgeRule(blocks_with_deletes=20),
    index_refresh=IndexRefreshRule(not_indexed_blocks=20),
)
#: Common times: the value of the field, its label, and the cron expression.
_WHEN: Final = (
    ("nightly", "every night at 2:00", "0 2 * * *"),
    ("hourly", "every hour", "0 * * * *"),
    ("weekly", "every Sunday at 2:00", "0 2 * * 0"),
)


class RuleLine(msgspec.Struct, frozen=True, kw_only=True):
    """A rule in the form: whether the policy has it, and the texts of its fields. ``problem``: what is wrong."""

    kind: _RuleKind
    is_on: bool
    threshold: str = ""
    every: str = ""
    cool_down: str = ""
    deletes: bool = False
    problem: str = ""


class UpkeepPages:
    """Pages of a table's policy and schedules."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        readers: Threads,
        policies: Policies,
        schedules: Schedules,
        has_auto: bool,
        pages: Pages,
    ) -> None:
        self._catalog = catalog
        self._readers = readers
        self._policies = policies
        self._schedules = schedules
        self._has_auto = has_auto
        self._pages = pages

    async def show(self, request: Request) -> Response:
        return await self._render(request)

    async def save_policy(self, request: Request) -> Response:
        form = await self._pages.form(request)
        found = await self._readers.run(lambda: self._policy(table_of(self._catalog, request)))
        policy, lines = read_rules(form.fields, found.policy)
        error: LamellaError | None = None
        if not any(line.problem for line in lines):
            try:
                if form.text("base") != str(found.updated_ms):
                    raise Conflict("somebody changed the policy meanwhile; compare it, and save again")
                await self._put(request, policy)
            except (InvalidRequest, Conflict) as caught:
                error = caught
                lines = [_with_problem(line, caught) for line in lines]
            else:
                return self._see(request, "policy_set")
        return await self._render(request, lines=lines, error=error)

    async def keep_in_shape(self, request: Request) -> Response:
        await self._pages.form(request)
        found = await self._readers.run(lambda: self._policy(table_of(self._catalog, request)))
        missing = {
            name: rule
            for name, rule in msgspec.structs.asdict(PRESET).items()
            if rule is not None and getattr(found.policy, name) is None
        }
        await self._put(request, msgspec.structs.replace(found.policy, **missing))
        return self._see(request, "policy_set")

    async def confirm_drop_policy(self, request: Request) -> Response:
        found = await self._readers.run(lambda: self._policies.get(table_of(self._catalog, request)))
        table = _name_of(request)
        names = [field.name for field in msgspec.structs.fields(Policy)]
        rules = [name for name in names if getattr(found.policy, name) is not None]
        return self._pages.question(
            request,
            Question(
                asks=f"Remove the policy of {table}?",
                says="No rule adds jobs to the table any more. Jobs that are in the queue stay, and so do schedules.",
                act="Remove the policy",
                back=self._link(request),
                facts=(fact("Rules", ", ".join(rules)),),
            ),
        )

    async def drop_policy(self, request: Request) -> Response:
        form = await self._pages.form(request)

        def work(idempotency_key: Any) -> Any:
            return self._policies.drop(table_of(self._catalog, request), idempotency_key)

        await self._pages.change(request, form, work)
        return self._see(request, "policy_removed")

    async def edit_schedule(self, request: Request) -> Response:
        name = text_of(request, "name")
        texts = dict(request.query_params)
        if name and "kind" not in texts:
            found = await self._readers.run(lambda: self._schedules.get(table_of(self._catalog, request), name))
            texts = schedule_texts(found)
        kind = job_kinds().get(texts.get("kind", ""))
        if kind is None or not kind.needs_table:
            kinds = [each for each in sorted(job_kinds().values(), key=lambda kind: kind.name) if each.needs_table]
            frame = {**self._frame(request), "kinds": kinds}
            return self._pages.html(request, "schedule_kinds.html", frame, title="New schedule")
        return self._form(request, kind, texts, edited=name)

    async def save_schedule(self, request: Request) -> Response:
        form = await self._pages.form(request)
        kind = job_kind_named(form.text("kind"))
        texts, edited = dict(form.fields), form.text("edited")
        try:
            wanted = read_schedule(kind, texts)
            name = edited or texts.get("schedule_name", "").strip()
            require_new_job(request, wanted.kind, wanted.arguments, wanted.priority, _name_of(request))

            def put() -> ScheduleInfo:
                record = table_of(self._catalog, request)
                if not edited and name in {each.name for each in self._schedules.list(record).schedules}:
                    raise InvalidRequest(f"there is a schedule {name!r} already", path="$.name")
                return self._schedules.put(record, name, wanted)

            await self._readers.run(put)
        except InvalidRequest as error:
            return self._form(request, kind, texts, edited=edited, error=error)
        return self._see(request, "scheduled")

    async def switch_schedule(self, request: Request) -> Response:
        form = await self._pages.form(request)
        name, is_on = form.text("name"), form.text("enabled") == "yes"

        def switch() -> ScheduleInfo:
            record = table_of(self._catalog, request)
            found = self._schedules.get(record, name)
            require_new_job(request, found.kind, found.arguments, found.priority, _name_of(request))
            return self._schedules.put(record, name, msgspec.structs.replace(put_of(found), enabled=is_on))

        await self._readers.run(switch)
        return self._see(request, "schedule_on" if is_on else "schedule_off")

    async def confirm_drop_schedule(self, request: Request) -> Response:
        name = text_of(request, "name")
        found = await self._readers.run(lambda: self._schedules.get(table_of(self._catalog, request), name))
        return self._pages.question(
            request,
            Question(
                asks=f"Remove the schedule {name} of {_name_of(request)}?",
                says="It adds no more jobs. Jobs that it has added stay.",
                act="Remove the schedule",
                back=self._link(request),
                facts=(fact("Job", found.kind), fact("When", when_text(found))),
                carried=(("name", name),),
            ),
        )

    async def drop_schedule(self, request: Request) -> Response:
        form = await self._pages.form(request)
        name = form.text("name")

        def work(idempotency_key: Any) -> Any:
            return self._schedules.drop(table_of(self._catalog, request), name, idempotency_key)

        await self._pages.change(request, form, work)
        return self._see(request, "schedule_removed")

    def pages(self) -> tuple[Page, ...]:
        read, maintain = on_table("read"), on_table("maintain")
        return (
            Page(_UPKEEP, self.show, "ui_upkeep", read),
            Page(_UPKEEP + "/policy", self.save_policy, "ui_put_policy", maintain, "POST"),
            Page(_UPKEEP + "/preset", self.keep_in_shape, "ui_put_preset", maintain, "POST"),
            Page(_UPKEEP + "/policy/remove", self.confirm_drop_policy, "ui_ask_drop_policy", maintain),
            Page(_UPKEEP + "/policy/remove", self.drop_policy, "ui_drop_policy", maintain, "POST"),
            Page(_SCHEDULE, self.edit_schedule, "ui_schedule", maintain),
            Page(_SCHEDULE, self.save_schedule, "ui_put_schedule", maintain, "POST"),
            Page(_SCHEDULE + "/switch", self.switch_schedule, "ui_switch_schedule", maintain, "POST"),
            Page(_SCHEDULE + "/remove", self.confirm_drop_schedule, "ui_ask_drop_schedule", maintain),
            Page(_SCHEDULE + "/remove", self.drop_schedule, "ui_drop_schedule", maintain, "POST"),
        )

    async def _put(self, request: Request, policy: Policy) -> None:
        """Store a policy, or remove an empty one. Raises as :meth:`Policies.put`, PermissionDenied."""
        for kind, rule in msgspec.structs.asdict(policy).items():
            if rule is not None:
                require_new_job(request, kind, rule.arguments, rule.priority, _name_of(request))
        if policy == Policy():
            raise InvalidRequest("choose a rule, or remove the policy")
        await self._readers.run(lambda: self._policies.put(table_of(self._catalog, request), policy))

    async def _render(
        self, request: Request, *, lines: list[RuleLine] | None = None, error: LamellaError | None = None
    ) -> Response:
        def read() -> dict[str, Any]:
            record = table_of(self._catalog, request)
            found = self._policy(record)
            schedules = self._schedules.list(record).schedules
            return {"policy": found, "schedules": schedules, "has_policy": found.policy != Policy()}

        values = await self._readers.run(read)
        found: PolicyInfo = values["policy"]
        last = {each.rule.partition(":")[0]: each for each in reversed(found.findings)}
        values |= {
            **self._frame(request),
            "lines": rule_lines(found.policy) if lines is None else lines,
            "findings": last,
            "auto": found.policy.auto,
            "has_auto": self._has_auto,
            "error": error,
            "when_text": when_text,
            "nightly": _WHEN[0],
            "has_nightly": any(each.kind == "compact" for each in values["schedules"]),
            "preset_missing": [
                name
                for name, rule in msgspec.structs.asdict(PRESET).items()
                if rule is not None and getattr(found.policy, name) is None
            ],
        }
        wrong = error is not None or (lines is not None and any(line.problem for line in lines))
        status = 200 if not wrong else 400 if error is None else status_of(type(error))
        return self._pages.html(request, "upkeep.html", values, status=status, title=f"Upkeep of {_name_of(request)}")

    def _form(
        self,
        request: Request,
        kind: JobKind,
        texts: Mapping[str, str],
        *,
        edited: str = "",
        error: InvalidRequest | None = None,
    ) -> Response:
        shown, _ = filled(fields_of(kind), texts)
        if error is None:
            shown = tuple(msgspec.structs.replace(each, problem=each.problem if each.text else "") for each in shown)
        problem, at = "", ""
        if error is not None:
            at = str(error.details.get("path", "")).removeprefix("$.")
            marked = with_problem(shown, at.removeprefix("arguments.").partition(".")[0], error.message)
            shown, problem = (shown, error.message) if marked is None else (marked, "")
        values = {
            **self._frame(request),
            "kind": kind,
            "edited": edited,
            "texts": texts,
            "whens": _WHEN,
            "fields": [each for each in shown if not each.advanced],
            "advanced": [each for each in shown if each.advanced],
            "has_execute": has_execute(kind),
            "problem": problem,
            "problem_at": at if problem else "",
        }
        title = f"Schedule {edited}" if edited else "New schedule"
        return self._pages.html(request, "schedule.html", values, status=200 if error is None else 400, title=title)

    def _policy(self, record: TableRecord) -> PolicyInfo:
        """Return the table's policy; an empty one if it has none."""
        try:
            return self._policies.get(record)
        except PolicyNotFound:
            return PolicyInfo(policy=Policy(), updated_ms=0)

    def _frame(self, request: Request) -> dict[str, Any]:
        names = request.path_params
        return {"namespace": names["namespace"], "table": names["table"], "tab": "upkeep"}

    def _link(self, request: Request, **query: Any) -> str:
        names = request.path_params
        return link("tables", names["namespace"], names["table"], "upkeep", **query)

    def _see(self, request: Request, done: str) -> Response:
        return self._pages.see(self._link(request, done=done))


def rule_lines(policy: Policy) -> list[RuleLine]:
    """Return the rules of a policy as lines of the form; those that it does not have are off."""
    found = []
    for kind in _RULES:
        rule: Rule | None = getattr(policy, kind.job)
        threshold = None if rule is None or not kind.threshold else getattr(rule, kind.threshold)
        found.append(
            RuleLine(
                kind=kind,
                is_on=rule is not None,
                threshold="" if threshold is None else str(threshold).removesuffix(".0"),
                every="" if rule is None or rule.every_s is None else duration_text(rule.every_s),
                cool_down=duration_text(3_600 if rule is None else rule.cool_down_s),
                deletes=rule is not None and bool(rule.arguments.get(EXECUTE)),
            )
        )
    return found


def read_rules(texts: Mapping[str, str], before: Policy) -> tuple[Policy, list[RuleLine]]:
    """Return the policy of a form, and its lines with what is wrong. What the form does not show stays as it was."""
    rules: dict[str, Any] = {}
    lines = []
    for kind in _RULES:
        line = RuleLine(
            kind=kind,
            is_on=bool(texts.get(kind.job)),
            threshold=texts.get(f"{kind.job}.threshold", "").strip(),
            every=texts.get(f"{kind.job}.every", "").strip(),
            cool_down=texts.get(f"{kind.job}.cool_down", "").strip(),
            deletes=bool(texts.get(f"{kind.job}.{EXECUTE}")),
        )
        if line.is_on:
            try:
                rules[kind.job] = _rule_of(line, getattr(before, kind.job))
            except InvalidRequest as error:
                line = msgspec.structs.replace(line, problem=error.message)
        lines.append(line)
    return Policy(**rules, auto=before.auto), lines


def _rule_of(line: RuleLine, before: Rule | None) -> Rule:
    kind = line.kind
    rule = kind.rule() if before is None else before
    arguments = {name: value for name, value in rule.arguments.items() if name != EXECUTE}
    if line.deletes and has_execute(job_kind_named(kind.job)):
        arguments[EXECUTE] = True
    changes: dict[str, Any] = {
        "every_s": duration_s(line.every) if line.every else None,
        "cool_down_s": duration_s(line.cool_down) if line.cool_down else Rule().cool_down_s,
        "arguments": arguments,
    }
    if kind.threshold:
        is_whole = kind.threshold != "average_depth"
        text = line.threshold
        changes[kind.threshold] = None if not text else whole_number(text) if is_whole else _number(text)
    return msgspec.structs.replace(rule, **changes)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidRequest(f"enter a number, not {text!r}") from None


def _with_problem(line: RuleLine, error: LamellaError) -> RuleLine:
    """Return a line with an error of the policy that is about its rule."""
    name = str(error.details.get("path", "")).removeprefix("$.").partition(".")[0]
    return msgspec.structs.replace(line, problem=error.message) if name == line.kind.job else line


def duration_s(text: str) -> int:
    """Parse a duration such as ``90 s``, ``15 min``, ``6 h``, ``1 d`` or ``2 weeks``; a number alone is seconds.

    Raises:
        InvalidRequest: anything else, or less than a second.
    """
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise InvalidRequest(f"enter a duration such as 30 min, 6 h or 1 d, not {text!r}")
    seconds = float(found[1]) * _DURATION_S[(found[2] or "s")[0]]
    if seconds != 0 and seconds < 1:
        raise InvalidRequest(f"a duration is at least a second, not {text!r}")
    return int(seconds)


def duration_text(seconds: int) -> str:
    """Return a duration as :func:`duration_s` reads it, in the largest unit that divides it."""
    for unit, unit_s in (("d", _DAY_S), ("h", 3_600), ("min", 60)):
        if seconds and seconds % unit_s == 0:
            return f"{seconds // unit_s} {unit}"
    return f"{seconds} s"


def when_text(schedule: ScheduleInfo) -> str:
    """Return the times of a schedule in words where they are common ones."""
    if schedule.cron is None:
        return f"every {duration_text(schedule.every_s or 0)}"
    label = next((label for _, label, cron in _WHEN if cron == schedule.cron), f"cron {schedule.cron}")
    return f"{label}, {schedule.time_zone}"


def put_of(schedule: ScheduleInfo) -> PutSchedule:
    """Return the request that makes a schedule like this one."""
    names = {field.name for field in msgspec.structs.fields(PutSchedule)}
    return PutSchedule(**{name: value for name, value in msgspec.structs.asdict(schedule).items() if name in names})


def schedule_texts(schedule: ScheduleInfo) -> dict[str, str]:
    """Return a schedule as the texts of its form."""
    kind = job_kind_named(schedule.kind)
    when = next((name for name, _, cron in _WHEN if cron == schedule.cron), "cron" if schedule.cron else "every")
    return {
        **texts_of(kind, schedule.arguments),
        "kind": kind.name,
        "schedule_name": schedule.name,
        "schedule_when": when,
        "schedule_cron": schedule.cron or "",
        "schedule_every": "" if schedule.every_s is None else duration_text(schedule.every_s),
        "schedule_time_zone": schedule.time_zone,
        "schedule_enabled": "yes" if schedule.enabled else "no",
        EXECUTE: "on" if schedule.arguments.get(EXECUTE) else "",
        "priority": str(schedule.priority),
        "schedule_attempts": "" if schedule.max_attempts is None else str(schedule.max_attempts),
        "schedule_timeout": "" if schedule.timeout_s is None else duration_text(schedule.timeout_s),
    }


def read_schedule(kind: JobKind, texts: Mapping[str, str]) -> PutSchedule:
    """Return the schedule of a form. Raises InvalidRequest, with the path of the field that is wrong."""
    fields, arguments = filled(fields_of(kind), texts)
    wrong: Field | None = next((each for each in fields if each.problem), None)
    if wrong is not None:
        raise InvalidRequest(wrong.problem, path=f"$.arguments.{wrong.name}")
    if has_execute(kind) and texts.get(EXECUTE):
        arguments[EXECUTE] = True
    when = texts.get("schedule_when", "")
    cron = next((cron for name, _, cron in _WHEN if name == when), None)
    every_s = None
    if when == "cron":
        cron = texts.get("schedule_cron", "").strip()
    elif when == "every":
        every_s = _at("every_s", lambda: duration_s(texts.get("schedule_every", "")))
    elif cron is None:
        raise InvalidRequest("choose when the job runs", path="$.when")
    attempts, timeout = (texts.get(name, "").strip() for name in ("schedule_attempts", "schedule_timeout"))
    return PutSchedule(
        kind=kind.name,
        arguments=arguments,
        every_s=every_s,
        cron=cron,
        time_zone=texts.get("schedule_time_zone", "").strip() or "UTC",
        enabled=texts.get("schedule_enabled", "yes") != "no",
        priority=_at("priority", lambda: whole_number(texts.get("priority", "").strip() or "0")),
        max_attempts=_at("max_attempts", lambda: whole_number(attempts)) if attempts else None,
        timeout_s=_at("timeout_s", lambda: duration_s(timeout)) if timeout else None,
    )


def _at(name: str, read: Any) -> int:
    """Return what ``read`` returns; its error gets the path of the member."""
    try:
        return int(read())
    except InvalidRequest as error:
        raise InvalidRequest(error.message, path=f"$.{name}") from None


def _name_of(request: Request) -> str:
    return f"{request.path_params['namespace']}.{request.path_params['table']}"
