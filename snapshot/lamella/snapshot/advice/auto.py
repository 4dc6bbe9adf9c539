"""Decisions of automatic upkeep: which candidate to do next within budgets, and whether an action reached its
prediction.

An action is worth its cost if it would have saved the filters of the last ``payback_days`` as many bytes as it takes.
Until then it waits for evidence, so a filter that is used once moves nothing, and at most about twice the bytes are
spent of what the best decisions in hindsight would have taken (the rule for renting or buying). Actions are taken one
at a time: each is measured before the next begins, on the filters that it was decided by.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, get_args

import msgspec

from lamella.snapshot.advice.predictions import OPEN_BYTES, OPEN_WORDS, saved_share, size_words
from lamella.snapshot.counts import counted
from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.expression.spark_casts import zone
from lamella.snapshot.wire.advice import Candidate, CandidateCost, CandidateGain, CandidateKind, CandidatesAnswer
from lamella.snapshot.wire.auto import AutoAction, AutoBudget, AutoDecision, AutoState, AutoVerdict
from lamella.snapshot.wire.jobs import AutoRule

_DAY_MS: Final = 86_400_000
_HOUR_MS: Final = 3_600_000
#: Budgets of a rule that states none, in parts of the table's bytes.
_INDEX_SHARE: Final = 0.25
#: An action that only frees space must free so much of what it rewrites, or of the table.
_FREED_OF_REWRITTEN: Final = 0.1
_FREED_OF_TABLE: Final = 0.05
#: An action with less than this part of its prediction is undone or not repeated.
_REACHED: Final = 0.5
#: How long a change is not repeated after the first disappointment; twice as long after each further one.
_RETRY_MS: Final[Mapping[str, int]] = {"index": 8 * _DAY_MS, "cluster_key": 8 * _DAY_MS}
_RETRY_REWRITE_MS: Final = _DAY_MS
_RETRY_FAILED_MS: Final = _HOUR_MS
_MAX_RETRY_MS: Final = 32 * _DAY_MS
_HOURS: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)", re.ASCII)
_KINDS: Final = get_args(CandidateKind)
#: States of actions that made the index that they name.
_MADE: Final = ("running", "succeeded", "unmeasured", "disappointing", "undoing")


def check_rule(rule: AutoRule, root: str = "$.auto") -> None:
    """Raise InvalidRequest for a number out of its range, hours or kinds that there are not."""
    if rule.hours is not None and _HOURS.fullmatch(rule.hours) is None:
        raise InvalidRequest(f"{rule.hours!r} are not hours; write 22:00-06:00", path=f"{root}.hours")
    if zone(rule.time_zone) is None:
        raise InvalidRequest(f"there is no time zone {rule.time_zone!r}", path=f"{root}.time_zone")
    for name in ("rewritten_bytes_per_day", "index_bytes"):
        value = getattr(rule, name)
        if value is not None and not 0 <= value < 1 << 53:
            raise InvalidRequest(f"{name} must be a number from 0, not {value}", path=f"{root}.{name}")
    if not 0 < rule.payback_days <= 366:
        raise InvalidRequest(f"payback_days must be above 0 and at most 366, not {rule.payback_days}", path=root)
    if not 0 <= rule.min_gain < 1:
        raise InvalidRequest(f"min_gain must be from 0 to below 1, not {rule.min_gain}", path=f"{root}.min_gain")
    for each in rule.kinds or ():
        if each not in _KINDS:
            raise InvalidRequest(f"{each!r} is no kind of candidate: {', '.join(_KINDS)}", path=f"{root}.kinds")


def change_of(candidate: Candidate) -> str:
    """Returns what a candidate changes, in the same words for the same change."""
    if candidate.kind == "index" and candidate.index is not None:
        index = candidate.index
        zoned = "" if index.time_zone == "UTC" else f" in {index.time_zone}"
        return f"index {index.kind} {index.expression}{zoned}"
    if candidate.kind == "cluster_key":
        return f"cluster_key {','.join(candidate.cluster_key)}"
    if candidate.kind in ("index_refresh", "drop_index"):
        return f"{candidate.kind} {candidate.index_name}"
    return candidate.kind


def own_indexes(actions: Iterable[AutoAction]) -> set[str]:
    """Returns the names of the indexes that actions made and did not drop."""
    names: set[str] = set()
    for each in sorted(actions, key=lambda action: action.started_ms):
        name = each.candidate.index_name
        if name is None:
            continue
        if each.candidate.kind == "index":
            (names.add if each.state in _MADE else names.discard)(name)
        elif each.candidate.kind == "drop_index" and each.state in ("succeeded", "unmeasured"):
            names.discard(name)
    return names


def budget_of(
    rule: AutoRule, actions: Sequence[AutoAction], bytes_total: int, index_sizes: Mapping[str, int], now_ms: int
) -> AutoBudget:
    """Returns the budgets of a rule, and what is used of them now. ``index_sizes``: of the table's indexes, by name."""
    spent = 0
    for each in actions:
        if each.finished_ms is None:
            spent += max(each.rewritten_bytes, each.candidate.cost.rewritten_bytes)
        elif each.finished_ms > now_ms - _DAY_MS:
            spent += each.rewritten_bytes
    is_open, opens_ms = opening(rule, now_ms)
    return AutoBudget(
        rewritten_bytes=spent,
        rewritten_bytes_limit=bytes_total if rule.rewritten_bytes_per_day is None else rule.rewritten_bytes_per_day,
        index_bytes=sum(index_sizes.get(name, 0) for name in own_indexes(actions)),
        index_bytes_limit=int(_INDEX_SHARE * bytes_total) if rule.index_bytes is None else rule.index_bytes,
        is_open=is_open,
        opens_ms=opens_ms,
    )


def opening(rule: AutoRule, now_ms: int) -> tuple[bool, int | None]:
    """Returns whether the rule's hours allow to begin now, and if not, when they do so next."""
    found = None if rule.hours is None else _HOURS.fullmatch(rule.hours)
    local_zone = zone(rule.time_zone)
    if found is None or local_zone is None:
        return True, None
    first, end = (dt.time(int(found[part]), int(found[part + 1])) for part in (1, 3))
    if first == end:
        return True, None
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    local = (epoch + dt.timedelta(milliseconds=now_ms)).astimezone(local_zone)
    now = local.time()
    if first <= now < end if first < end else now >= first or now < end:
        return True, None
    day = local.date() + dt.timedelta(days=int(now >= first))
    opens = dt.datetime.combine(day, first, tzinfo=local_zone).astimezone(dt.UTC)
    return False, (opens - epoch) // dt.timedelta(milliseconds=1)


def verdicts_of(
    rule: AutoRule, answer: CandidatesAnswer, actions: Sequence[AutoAction], budget: AutoBudget, now_ms: int
) -> list[AutoVerdict]:
    """Returns the decisions about all candidates, those to do first; the first of them is "do", the others "next".

    ``answer``: of candidates whose gains count the uses in the last ``payback_days``.
    """
    judge = _Judge(rule, answer, actions, budget, now_ms)
    found = sorted((judge.verdict(each) for each in answer.candidates), key=_order)
    found = [
        msgspec.structs.replace(each, decision="next", reason=f"{each.reason}; another action comes first")
        if each.decision == "do" and number
        else each
        for number, each in enumerate(found)
    ]
    return found + [judge.verdict(each) for each in answer.unpredicted]


def _order(each: AutoVerdict) -> tuple[int, float]:
    """Those to do first, of these the one that saves most for its cost; what only frees space comes after them."""
    position = ("do", "waits", "not_repeated", "not_worth", "not_allowed", "unknown").index(each.decision)
    saved = _Reading(blocks=each.saved_blocks, bytes=each.saved_bytes)
    cost = _Reading(blocks=each.cost_blocks, bytes=each.cost_bytes)
    return position, -saved.weight / max(cost.weight, 1.0)


class _Reading(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks that are opened, and bytes of files that are read or written."""

    blocks: float
    bytes: float

    @property
    def weight(self) -> float:
        """Returns the bytes, with :data:`OPEN_BYTES` for each block."""
        return self.bytes + OPEN_BYTES * self.blocks

    def saved_words(self) -> str:
        blocks, size = f"{counted(round(abs(self.blocks)), 'block')}", size_words(abs(self.bytes))
        first = f"opening {blocks}" if self.blocks >= 0 else f"(opening {blocks} more)"
        return f"{first} and reading {size}" if self.bytes >= 0 else f"{first} (reading {size} more)"

    def cost_words(self) -> str:
        return f"opening {counted(round(self.blocks), 'block')}, and {size_words(self.bytes)} read and written"


class _Judge:
    """Decides about one candidate at a time."""

    def __init__(
        self,
        rule: AutoRule,
        answer: CandidatesAnswer,
        actions: Sequence[AutoAction],
        budget: AutoBudget,
        now_ms: int,
    ) -> None:
        self._rule = rule
        self._bytes_total = answer.bytes_total
        self._actions = actions
        self._own = own_indexes(actions)
        self._budget = budget
        self._now_ms = now_ms

    def verdict(self, candidate: Candidate) -> AutoVerdict:
        """Returns the decision, and the reason."""
        saved, cost = _saved(candidate.gain), _cost(candidate.cost)
        decision, reason = self._decide(candidate, saved, cost)
        return AutoVerdict(
            candidate=candidate,
            decision=decision,
            reason=reason,
            saved_bytes=saved.bytes,
            saved_blocks=saved.blocks,
            cost_bytes=cost.bytes,
            cost_blocks=cost.blocks,
        )

    def _decide(self, candidate: Candidate, saved: _Reading, cost: _Reading) -> tuple[AutoDecision, str]:
        if candidate.missing:
            return "unknown", candidate.missing
        if self._rule.kinds is not None and candidate.kind not in self._rule.kinds:
            return "not_allowed", "the rule does not allow this kind"
        if candidate.kind == "drop_index" and candidate.index_name not in self._own:
            return "not_allowed", "people made this index"
        gain = candidate.gain
        if candidate.kind == "cluster_key" and gain is not None and gain.unknown:
            return (
                "unknown",
                f"{counted(gain.unknown, 'filter')} cannot be predicted, and could read more: {gain.reason}",
            )
        reason = self._worth(candidate, saved, cost)
        if reason is not None:
            return "not_worth", reason
        words = self._worth_words(candidate, saved, cost)
        retry_ms = max((each.retry_ms or 0 for each in self._actions if each.change == change_of(candidate)), default=0)
        if retry_ms > self._now_ms:
            return "not_repeated", f"{words}, but it was tried; again from {_time(retry_ms)}"
        budget = self._budget
        if candidate.cost.rewritten_bytes > budget.rewritten_bytes_left:
            left, limit = size_words(budget.rewritten_bytes_left), size_words(budget.rewritten_bytes_limit)
            size = size_words(candidate.cost.rewritten_bytes)
            if candidate.cost.rewritten_bytes > budget.rewritten_bytes_limit:
                return "not_allowed", f"{words}, but it rewrites {size}; the budget is {limit} in 24 hours"
            return "waits", f"{words}, but it rewrites {size}; {left} of {limit} are left in these 24 hours"
        if candidate.kind == "index":
            size_bytes = candidate.cost.index_bytes
            if size_bytes is None:
                return "unknown", "the size of the index cannot be estimated"
            if size_bytes > budget.index_bytes_left:
                left, limit = size_words(budget.index_bytes_left), size_words(budget.index_bytes_limit)
                return "not_allowed", f"{words}, but {left} of {limit} for indexes are left"
        if not budget.is_open:
            opens = "" if budget.opens_ms is None else f"; they begin at {_time(budget.opens_ms)}"
            return "waits", f"{words}, but the hours are {self._rule.hours}{opens}"
        return "do", words

    def _worth(self, candidate: Candidate, saved: _Reading, cost: _Reading) -> str | None:
        """Returns why a candidate is not worth its cost; None: it is."""
        rule, gain, freed = self._rule, candidate.gain, candidate.freed_bytes or 0.0
        if candidate.kind == "drop_index":
            return None  # no filter reads more without it
        if candidate.kind == "vacuum":
            if freed < _FREED_OF_TABLE * self._bytes_total:
                return f"it frees {size_words(freed)}, less than {_FREED_OF_TABLE:.0%} of the table"
            return None
        if candidate.kind == "purge" and freed >= _FREED_OF_REWRITTEN * candidate.cost.rewritten_bytes:
            return None
        if gain is None:
            return "the filters read as much as before"
        share = saved_share(gain)
        if share < rule.min_gain:
            return f"it saves {max(share, 0.0):.1%} of what the filters read; the rule wants {rule.min_gain:.1%}"
        return self._compared(gain, saved, cost) if saved.weight < cost.weight else None

    def _worth_words(self, candidate: Candidate, saved: _Reading, cost: _Reading) -> str:
        if candidate.kind == "drop_index":
            return "no filter uses the index"
        if candidate.gain is None or saved.weight < cost.weight:
            return f"it frees {size_words(candidate.freed_bytes or 0.0)}"
        return self._compared(candidate.gain, saved, cost)

    def _compared(self, gain: CandidateGain, saved: _Reading, cost: _Reading) -> str:
        return (
            f"it would have saved {saved.saved_words()} in {self._rule.payback_days:g} days ({gain.times:,} uses) and "
            f"takes {cost.cost_words()}, where {OPEN_WORDS}"
        )


def _saved(gain: CandidateGain | None) -> _Reading:
    if gain is None:
        return _Reading(blocks=0.0, bytes=0.0)
    before, after = gain.before, gain.after
    return _Reading(blocks=gain.times * (before.blocks - after.blocks), bytes=gain.times * (before.bytes - after.bytes))


def _cost(cost: CandidateCost) -> _Reading:
    """Returns the bytes that are read and written, and the blocks that are opened for either."""
    return _Reading(
        blocks=2.0 * (cost.blocks if cost.rewritten_bytes else 0) + (cost.blocks if cost.read_bytes else 0),
        bytes=2.0 * cost.rewritten_bytes + cost.read_bytes + (cost.index_bytes or 0.0),
    )


def outcome_of(
    action: AutoAction, measured: CandidateGain | None, missing: str, actions: Sequence[AutoAction], now_ms: int
) -> AutoAction:
    """Returns an action that was done, with its state: whether it reached its prediction.

    ``measured``: what the filters read before and after; None: that cannot be measured, and ``missing`` states why.
    ``actions``: of the table, earlier ones.
    """
    predicted = action.candidate.gain
    done = msgspec.structs.replace(action, finished_ms=now_ms, measured=measured)
    if predicted is None:
        return msgspec.structs.replace(done, state="succeeded", reason="its gain is what it frees")
    if measured is None:
        return msgspec.structs.replace(done, state="unmeasured", reason=missing)
    wanted, reached = saved_share(predicted), saved_share(measured)
    words = f"the filters read {reached:.1%} less, predicted were {wanted:.1%}"
    if reached < 0:
        words = f"the filters read {-reached:.1%} more, predicted were {wanted:.1%} less"
    words += f"; {OPEN_WORDS}"
    if reached >= _REACHED * wanted:
        return msgspec.structs.replace(done, state="succeeded", reason=words)
    kind = action.candidate.kind
    # A key with some gain stays: its rows are written in that order, and the old key would have to be paid for again.
    is_undone = kind == "index" or (kind == "cluster_key" and reached < 0)
    retry_ms = now_ms + _retry_ms(action, actions, _RETRY_MS.get(kind, _RETRY_REWRITE_MS))
    state: AutoState = "undoing" if is_undone else "disappointing"
    return msgspec.structs.replace(done, state=state, reason=words, retry_ms=retry_ms)


def failed(action: AutoAction, reason: str, actions: Sequence[AutoAction], now_ms: int) -> AutoAction:
    """Returns an action that failed, for ``reason``."""
    retry_ms = now_ms + _retry_ms(action, actions, _RETRY_FAILED_MS)
    return msgspec.structs.replace(action, state="failed", reason=reason, finished_ms=now_ms, retry_ms=retry_ms)


def _retry_ms(action: AutoAction, actions: Sequence[AutoAction], first_ms: int) -> int:
    times = sum(
        each.change == action.change and each.retry_ms is not None and each.action_id != action.action_id
        for each in actions
    )
    return int(min(first_ms * 2 ** min(times, 20), _MAX_RETRY_MS))


def _time(ms: int) -> str:
    at = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=ms)
    return f"{at:%Y-%m-%d %H:%M} UTC"
