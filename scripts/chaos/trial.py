"""One fault under load: which requests fail, how, and how long until requests succeed again."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from typing import Final

import msgspec

from chaos.faults import Fault
from chaos.load import Attempt, Load
from stack.supervisor import Stack

#: Seconds without a failure before the next fault.
_QUIET_S: Final = 3.0
#: Seconds after which a stack counts as not recovered.
GIVE_UP_S: Final = 120.0


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """What a fault did.

    ``commits_failed`` and ``prunes_failed``: requests without success by what was answered. ``without_commits_s`` and
    ``without_prunes_s``: the longest time in which none succeeded. ``recovered_s``: from its end until the last request
    failed, 0 when none did after it; None: it never ended.
    """

    what: str
    way: str
    commits: int
    prunes: int
    commits_failed: dict[str, int]
    prunes_failed: dict[str, int]
    jobs_failed: dict[str, int]
    without_commits_s: float
    without_prunes_s: float
    recovered_s: float | None


def attempt(stack: Stack, load: Load, fault: Fault) -> Trial:
    """Inject a fault into a healthy stack and wait until it is healthy again."""
    began_s = time.monotonic()
    fault.inject(stack)
    over_s = time.monotonic()
    is_over = False
    while not is_over and time.monotonic() < over_s + GIVE_UP_S:
        time.sleep(0.2)
        is_over = _is_quiet(load, over_s) and all(stack.members[name].check() for name in fault.services)
    ended = load.ledger.since(began_s)
    failures = [each.ended_s for each in ended if each.outcome != "ok"]
    # A job's program sends requests of its own; here it counts what was asked of the service for it.
    return Trial(
        what=fault.name,
        way=fault.way,
        commits=sum(each.kind == "commit" and each.outcome == "ok" for each in ended),
        prunes=sum(each.kind == "prune" and each.outcome == "ok" for each in ended),
        commits_failed=_failed(ended, "commit"),
        prunes_failed=_failed(ended, "prune"),
        jobs_failed=_failed(ended, "job"),
        without_commits_s=_longest_gap(ended, "commit", began_s),
        without_prunes_s=_longest_gap(ended, "prune", began_s),
        recovered_s=max(0.0, max(failures, default=over_s) - over_s) if is_over else None,
    )


def _is_quiet(load: Load, over_s: float) -> bool:
    """Whether commits and prunes succeed, and nothing has failed for some time after the fault."""
    now_s = time.monotonic()
    if now_s < over_s + _QUIET_S:
        return False
    last = load.ledger.since(now_s - _QUIET_S)
    kinds = Counter(each.kind for each in last if each.outcome == "ok")
    return all(each.outcome == "ok" for each in last) and kinds["commit"] > 3 and kinds["prune"] > 3


def _failed(attempts: list[Attempt], kind: str) -> dict[str, int]:
    return dict(Counter(each.outcome for each in attempts if each.kind == kind and each.outcome != "ok").most_common())


def _longest_gap(attempts: list[Attempt], kind: str, began_s: float) -> float:
    """Return the longest time between two successes, counted from the beginning."""
    moments = sorted([began_s, *(each.ended_s for each in attempts if each.kind == kind and each.outcome == "ok")])
    return max((after - before for before, after in itertools.pairwise(moments)), default=0.0)
