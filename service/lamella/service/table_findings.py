"""What is worth doing for a table, by its figures: its policy's thresholds where it has one, else these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from lamella.service.table_figures import Finding, IndexHealth, Remedy, TableHealth
from lamella.snapshot.jobs import job_kinds
from lamella.snapshot.wire import Policy, Rule

#: Every load leaves some small blocks behind; these are more than that, and enough for a job to be worth its start.
_SMALL_BLOCKS: Final = 32
_SMALL_SHARE: Final = 0.1
#: Twice what reclustering aims at: it would about halve what a look-up reads.
_DEPTH: Final = 4.0
#: How much deeper than before: less comes and goes with single loads.
_GROWTH: Final = 1.5
_GROWTH_LEAST: Final = 0.5
#: Blocks that an index does not know are read: a twentieth is noticed, half makes it of little use.
_NOT_INDEXED_SHARE: Final = 0.05
_NOT_INDEXED_MUCH: Final = 0.5
#: A daily vacuum of a table that is committed to every half hour leaves half of these.
_EXPIRED: Final = 100
#: Of smaller tables a prune reads little, however they are laid out.
_LARGE_BLOCKS: Final = 1_000


def findings_of(health: TableHealth, policy: Policy, *, has_filters: bool) -> tuple[Finding, ...]:
    """What the figures say, the gravest first. ``has_filters``: filters of the table were recorded."""
    found = [
        *_small_blocks(health, policy),
        *_depth(health, policy),
        *(each for index in health.indexes for each in _not_indexed(index, policy)),
        *_retention(health, policy),
        *(_no_key(health) if has_filters else ()),
    ]
    return tuple(sorted(found, key=lambda finding: finding.severity != "warn"))


def _small_blocks(health: TableHealth, policy: Policy) -> Iterator[Finding]:
    small, blocks = health.small_blocks, health.block_count
    if not small or not blocks:
        return
    rule = policy.compact
    own = None if rule is None else rule.small_blocks
    if small >= own if own is not None else small >= max(_SMALL_BLOCKS, _SMALL_SHARE * blocks):
        text = f"{small:,} of {blocks:,} blocks are smaller than compaction leaves them."
        yield Finding(code="small_blocks", severity="warn", text=text, remedy=_job("compact", rule))


def _depth(health: TableHealth, policy: Policy) -> Iterator[Finding]:
    depth = health.average_depth
    if depth is None:
        return
    rule = policy.recluster
    least = _DEPTH if rule is None or rule.average_depth is None else rule.average_depth
    remedy = _job("recluster", rule)
    if depth >= least:
        text = f"A value of the cluster key lies in {depth:.1f} blocks on average; {least:g} or more are too many."
        yield Finding(code="depth", severity="warn", text=text, remedy=remedy)
    for before, when in ((health.depth_week_ago, "a week ago"), (health.depth_day_ago, "a day ago")):
        if before is not None and depth >= before * _GROWTH and depth - before >= _GROWTH_LEAST:
            text = f"A value of the cluster key lies in {depth:.1f} blocks on average; {when} it was {before:.1f}."
            yield Finding(code="depth_growing", severity="info", text=text, remedy=remedy)
            return


def _not_indexed(index: IndexHealth, policy: Policy) -> Iterator[Finding]:
    if not index.not_indexed:
        return
    rule = policy.index_refresh
    if rule is not None and rule.indexes is not None and index.name not in rule.indexes:
        rule = None
    own = None if rule is None else rule.not_indexed_blocks
    share = index.not_indexed / index.blocks
    if index.not_indexed < own if own is not None else share < _NOT_INDEXED_SHARE:
        return
    yield Finding(
        code="not_indexed",
        severity="warn" if own is not None or share >= _NOT_INDEXED_MUCH else "info",
        text=f"Index {index.name!r} does not know {index.not_indexed:,} of {index.blocks:,} blocks, which are read.",
        remedy=_job("index_refresh", rule, {"index": index.name}),
    )


def _retention(health: TableHealth, policy: Policy) -> Iterator[Finding]:
    expired, snapshots = health.expired_snapshots, health.snapshots
    if not expired or not snapshots:
        return
    rule = policy.vacuum
    own = None if rule is None else rule.snapshots
    if snapshots >= own if own is not None else expired >= _EXPIRED:
        text = f"{expired:,} of {snapshots:,} snapshots are past their retention and would expire with a vacuum."
        yield Finding(code="retention", severity="warn", text=text, remedy=_job("vacuum", rule, {"execute": True}))


def _no_key(health: TableHealth) -> Iterator[Finding]:
    if not health.cluster_key and health.block_count is not None and health.block_count >= _LARGE_BLOCKS:
        text = f"The table has {health.block_count:,} blocks, is asked with filters, and has no cluster key."
        yield Finding(code="no_cluster_key", severity="info", text=text)


def _job(kind: str, rule: Rule | None, arguments: Mapping[str, Any] | None = None) -> Remedy | None:
    """The job as the policy would ask for it."""
    if kind not in job_kinds():
        return None
    return Remedy(kind=kind, arguments={**({} if rule is None else rule.arguments), **(arguments or {})})
