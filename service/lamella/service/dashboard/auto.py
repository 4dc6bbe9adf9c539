"""Automatic upkeep of a table: its rule, what it would do now and why, and what it did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamella.service.catalog import Catalog, TableRecord
from lamella.service.dashboard import words
from lamella.service.dashboard.job_fields import size_of
from lamella.service.dashboard.pages import Page, Pages, link, table_of, text_of
from lamella.service.dashboard.tables import TABLE
from lamella.service.dashboard.upkeep import duration_s, duration_text
from lamella.service.features import AutoUpkeep
from lamella.service.http.problem import status_of
from lamella.service.jobs.policies import Policies
from lamella.service.jobs.queue import require_new_job
from lamella.service.process.threads import Threads
from lamella.snapshot.advice.auto import check_rule
from lamella.snapshot.errors import Conflict, InvalidRequest, LamellaError, PolicyNotFound
from lamella.snapshot.wire import AutoAction, AutoRequest, AutoRule, Policy, PolicyInfo
from lamella.snapshot.wire.operation import on_table

_AUTO: Final = TABLE + "/upkeep/auto"
#: Decisions that are made at once in a process: each takes seconds of a large table.
_AT_ONCE: Final = 1
_WAITING: Final = 4
#: Actions of the ledger on the page.
_LISTED: Final = 50
_MODES: Final = (("off", "Off"), ("dry_run", "Dry run: decide, and do nothing"), ("on", "On"))
#: Decisions and states with their label and colour.
_DECISIONS: Final = {
    "do": ("Now", "good"),
    "next": ("Then", "good"),
    "waits": ("Waits", "warn"),
    "not_worth": ("Not worth it", ""),
    "not_allowed": ("Not allowed", "warn"),
    "not_repeated": ("Not repeated", "warn"),
    "unknown": ("Cannot tell", ""),
}
_STATES: Final = {
    "running": ("Running", ""),
    "succeeded": ("Succeeded", "good"),
    "undoing": ("Being undone", "warn"),
    "undone": ("Undone", "warn"),
    "disappointing": ("Less than predicted", "warn"),
    "unmeasured": ("Not measured", ""),
    "failed": ("Failed", "bad"),
}


class RuleTexts(msgspec.Struct, frozen=True, kw_only=True):
    """The rule as the texts of its form."""

    mode: str
    every: str
    rewritten: str
    index: str
    hours: str
    time_zone: str
    payback: str
    gain: str


class AutoPages:
    """The page of automatic upkeep, for those who maintain the table."""

    def __init__(
        self, *, catalog: Catalog, readers: Threads, policies: Policies, auto: AutoUpkeep, pages: Pages
    ) -> None:
        self._catalog = catalog
        self._readers = readers
        self._policies = policies
        self._auto = auto
        self._pages = pages
        self._deciders = Threads(_AT_ONCE, max_waiting=_WAITING, what="decisions of automatic upkeep")

    async def show(self, request: Request) -> Response:
        return await self._render(request)

    async def save(self, request: Request) -> Response:
        form = await self._pages.form(request)
        found = await self._readers.run(lambda: self._policy(table_of(self._catalog, request)))
        texts = RuleTexts(**{field.name: form.text(field.name).strip() for field in msgspec.structs.fields(RuleTexts)})
        try:
            if form.text("base") != str(found.updated_ms):
                raise Conflict("somebody changed the policy meanwhile; compare it, and save again")
            rule = read_rule(texts, found.policy.auto)
            policy = msgspec.structs.replace(found.policy, auto=rule)
            if rule is not None:
                require_new_job(request, "auto", rule.arguments, rule.priority, _name_of(request))
            await self._readers.run(lambda: self._put(table_of(self._catalog, request), policy))
        except (InvalidRequest, Conflict) as error:
            return await self._render(request, texts=texts, error=error)
        return self._pages.see(self._link(request, done="policy_set"))

    def pages(self) -> tuple[Page, ...]:
        maintain = on_table("maintain")
        return (
            Page(_AUTO, self.show, "ui_auto", maintain),
            Page(_AUTO, self.save, "ui_put_auto", maintain, "POST"),
        )

    def _put(self, table: TableRecord, policy: Policy) -> None:
        """Store a policy. One without any rule stays: other rules may be added to it."""
        self._policies.put(table, policy)

    async def _render(
        self, request: Request, *, texts: RuleTexts | None = None, error: LamellaError | None = None
    ) -> Response:
        def read() -> dict[str, Any]:
            record = table_of(self._catalog, request)
            return {"policy": self._policy(record), "ledger": self._auto.ledger(record)}

        values = await self._readers.run(read)
        plan = None
        if text_of(request, "explain"):
            sample_blocks = 16 if text_of(request, "explain") == "sample" else 0
            plan = await self._deciders.run(
                lambda: self._auto.plan(table_of(self._catalog, request), AutoRequest(sample_blocks=sample_blocks))
            )
        rule = values["policy"].policy.auto
        actions = values["ledger"].actions
        values |= {
            "namespace": request.path_params["namespace"],
            "table": request.path_params["table"],
            "tab": "upkeep",
            "texts": rule_texts(rule) if texts is None else texts,
            "rule": rule,
            "modes": _MODES,
            "error": error,
            "plan": plan,
            "decisions": _DECISIONS,
            "states": _STATES,
            "actions": actions[:_LISTED],
            "action_count": len(actions),
            "gain_text": gain_text,
        }
        status = 200 if error is None else status_of(type(error))
        title = f"Automatic upkeep of {_name_of(request)}"
        return self._pages.html(request, "auto.html", values, status=status, title=title)

    def _policy(self, record: TableRecord) -> PolicyInfo:
        try:
            return self._policies.get(record)
        except PolicyNotFound:
            return PolicyInfo(policy=Policy(), updated_ms=0)

    def _link(self, request: Request, **query: Any) -> str:
        names: Mapping[str, str] = request.path_params
        return link("tables", names["namespace"], names["table"], "upkeep", "auto", **query)


def rule_texts(rule: AutoRule | None) -> RuleTexts:
    """Return a rule as the texts of its form; None: one that is off."""
    shown = AutoRule() if rule is None else rule
    return RuleTexts(
        mode="off" if rule is None else "dry_run" if rule.dry_run else "on",
        every=duration_text(shown.every_s or 0),
        rewritten="" if shown.rewritten_bytes_per_day is None else str(shown.rewritten_bytes_per_day),
        index="" if shown.index_bytes is None else str(shown.index_bytes),
        hours=shown.hours or "",
        time_zone=shown.time_zone,
        payback=f"{shown.payback_days:g}",
        gain=f"{100 * shown.min_gain:g}",
    )


def read_rule(texts: RuleTexts, before: AutoRule | None) -> AutoRule | None:
    """Return the rule of a form; None: it is off. Other members stay as they were. Raises InvalidRequest."""
    if texts.mode == "off":
        return None
    if texts.mode not in ("dry_run", "on"):
        raise InvalidRequest("choose whether it is on", path="$.auto")
    rule = msgspec.structs.replace(
        before or AutoRule(),
        dry_run=texts.mode == "dry_run",
        every_s=duration_s(texts.every) if texts.every else 3_600,
        rewritten_bytes_per_day=size_of(texts.rewritten) if texts.rewritten else None,
        index_bytes=size_of(texts.index) if texts.index else None,
        hours=texts.hours or None,
        time_zone=texts.time_zone or "UTC",
        payback_days=_number("days", texts.payback or "7"),
        min_gain=_number("percent", texts.gain or "2") / 100,
    )
    check_rule(rule)
    return rule


def gain_text(action: AutoAction) -> str:
    """Return the predicted and the measured part of the blocks that filters skip, in words."""
    predicted, measured = action.candidate.gain, action.measured
    if predicted is None:
        freed = action.candidate.freed_bytes
        return "" if not freed else f"frees {words.size(freed)}"
    text = f"skipped {words.percent(predicted.before.skip)}, predicted {words.percent(predicted.after.skip)}"
    return text if measured is None else f"{text}, measured {words.percent(measured.after.skip)}"


def _number(what: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidRequest(f"enter a number of {what}, not {text!r}") from None


def _name_of(request: Request) -> str:
    return f"{request.path_params['namespace']}.{request.path_params['table']}"
