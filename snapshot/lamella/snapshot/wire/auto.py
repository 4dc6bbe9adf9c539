"""Automatic upkeep: what the rule ``auto`` of a policy decides and did."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from lamella.snapshot.wire.advice import Candidate, CandidateGain
from lamella.snapshot.wire.jobs import AutoRule
from lamella.snapshot.wire.limits import Expression, Word

AutoDecision = Literal[
    "do",  # it would be done now, or is begun with this answer
    "next",  # it is worth its cost, but another one comes first
    "waits",  # it is worth its cost, but a budget or the hours do not allow it now
    "not_worth",  # it saves too little for its cost
    "not_allowed",  # the rule does not allow this kind, or it would change what people made
    "not_repeated",  # it was tried, and did less than half of what was predicted, or failed
    "unknown",  # its gain cannot be predicted
]
AutoState = Literal[
    "running",  # begun, and not ended
    "succeeded",  # it reached half of its prediction or more
    "undoing",  # it is to be undone
    "undone",  # it did not reach half of its prediction and was undone
    "disappointing",  # it did not reach half of its prediction and cannot be undone; it is not repeated for some time
    "unmeasured",  # it was done, but its gain cannot be measured
    "failed",  # it was not done
]


class AutoAction(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An entry of the ledger.

    ``change``: what was changed, in the same words for the same change. ``snapshot_id``: before it;
    ``done_snapshot_id``: after it. ``candidate``: with the predicted gain and cost. ``measured``: what the same filters
    read before and after. ``rewritten_bytes``: of the files that it replaced; ``index_bytes``: of the index that it
    made. ``reason``: why it has its state. ``retry_ms``: the same change is not tried before. ``was_cluster_key``,
    ``was_cluster_kind``: what a change of the cluster key is undone to.
    """

    action_id: str
    state: AutoState
    change: str
    candidate: Candidate
    snapshot_id: str
    started_ms: int
    finished_ms: int | None = None
    done_snapshot_id: str | None = None
    measured: CandidateGain | None = None
    rewritten_bytes: int = 0
    index_bytes: int = 0
    reason: str = ""
    retry_ms: int | None = None
    was_cluster_key: tuple[str, ...] = ()
    was_cluster_kind: str = "linear"


class AutoVerdict(Struct, frozen=True, kw_only=True):
    """What is decided about a candidate, and why.

    ``saved_bytes``, ``saved_blocks``: bytes of files that the filters of the last ``payback_days`` would have read less
    (negative: more), and blocks that they would not have opened. ``cost_bytes``, ``cost_blocks``: bytes that are read
    and written to do it, and blocks that are opened. A decision compares the sums in which a block counts 4 MiB.
    """

    candidate: Candidate
    decision: AutoDecision
    reason: str
    saved_bytes: float = 0.0
    saved_blocks: float = 0.0
    cost_bytes: float = 0.0
    cost_blocks: float = 0.0


class AutoBudget(Struct, frozen=True, kw_only=True):
    """The budgets of a rule, and what is used: bytes that were rewritten in the last 24 hours, bytes of indexes that it
    made. ``is_open``: whether the hours allow to begin now; ``opens_ms``: when they do so next."""

    rewritten_bytes: int
    rewritten_bytes_limit: int
    index_bytes: int
    index_bytes_limit: int
    is_open: bool = True
    opens_ms: int | None = None

    @property
    def rewritten_bytes_left(self) -> int:
        """Returns how many bytes may still be rewritten today."""
        return max(self.rewritten_bytes_limit - self.rewritten_bytes, 0)

    @property
    def index_bytes_left(self) -> int:
        """Returns how large further indexes may be."""
        return max(self.index_bytes_limit - self.index_bytes, 0)


class AutoRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``POST .../auto``: decides about all candidates of a table. Changes nothing.

    ``rule``: decide by this rule instead of the policy's. ``recorded``: the number of recorded filters to replay.
    ``sample_blocks``, ``seed``: as for candidates.
    """

    rule: AutoRule | None = None
    recorded: Annotated[int, Meta(ge=1, le=1_000)] = 100
    sample_blocks: Annotated[int, Meta(ge=0, le=1_000)] = 0
    seed: Annotated[int, Meta(ge=0)] = 0


class AutoStart(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``POST .../auto/start``: decides by the policy's rule, and begins the action that is to be done, if there is one.

    ``runner``: an id (UUID) of the caller, which does the action and reports it. ``lease_s``: it counts as failed if
    nothing is reported for so long. ``recorded``, ``sample_blocks``, ``seed``: as for :class:`AutoRequest`.
    """

    runner: Word
    lease_s: Annotated[int, Meta(ge=1, le=86_400)] = 300
    recorded: Annotated[int, Meta(ge=1, le=1_000)] = 100
    sample_blocks: Annotated[int, Meta(ge=0, le=1_000)] = 0
    seed: Annotated[int, Meta(ge=0)] = 0


class AutoReport(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """``POST .../auto/{action_id}``: what became of an action. ``runner``: that began it.

    ``outcome``: "running" extends its lease by ``lease_s``; "done": the service measures it; "failed"; "undone".
    ``rewritten_bytes``: of the files that it replaced so far. ``reason``: why it failed.
    """

    runner: Word
    outcome: Literal["running", "done", "failed", "undone"]
    lease_s: Annotated[int, Meta(ge=1, le=86_400)] = 300
    rewritten_bytes: Annotated[int, Meta(ge=0, lt=1 << 53)] = 0
    reason: Expression = ""


class AutoPlan(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The decisions about all candidates, those to do first. ``has_policy``: False: the table has no rule ``auto``, and
    these are the decisions of one without members. ``action``: what was begun. ``blocked``: why nothing can be begun
    now, whatever the decisions are."""

    snapshot_id: str
    rule: AutoRule
    has_policy: bool
    budget: AutoBudget
    verdicts: tuple[AutoVerdict, ...]
    filters: int = 0
    left_out: dict[str, str] = {}
    action: AutoAction | None = None
    blocked: str = ""


class AutoLedger(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The actions of a table, the latest first, and the rule (None: the policy has none)."""

    actions: tuple[AutoAction, ...]
    rule: AutoRule | None = None
