"""What candidates gain, in figures and in words, and the command lines that do them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from lamella.snapshot.advice.rewrites import Reads
from lamella.snapshot.counts import counted
from lamella.snapshot.job_kinds import command_line, job_kind_named
from lamella.snapshot.wire.advice import Candidate, CandidateGain, Cost, Forecast, IndexChange

#: Opening a block costs as much as reading so many bytes: ``spark.sql.files.openCostInBytes`` of Spark.
OPEN_BYTES: Final = 4 << 20
OPEN_WORDS: Final = "opening a block counts as reading 4.2 MB"


def gain_of(reads: Sequence[Forecast | Reads]) -> CandidateGain | None:
    """Returns the averages over the filters that can be predicted; None if there is none."""
    known = [each for each in reads if each.then is not None]
    if not known:
        return None
    weights = [each.times for each in known]

    def mean(costs: Sequence[Cost]) -> Cost:
        total = max(sum(weights), 1)
        return Cost(
            **{
                name: sum(getattr(cost, name) * weight for cost, weight in zip(costs, weights, strict=True)) / total
                for name in ("blocks", "bytes", "skip")
            }
        )

    limits = [_limits(each) for each in known]
    after = mean([each.then for each in known if each.then is not None])
    low, high = mean([low for low, _ in limits]), mean([high for _, high in limits])
    unknown = [each for each in reads if each.then is None]
    return CandidateGain(
        before=mean([each.now for each in known]),
        after=after,
        at_least=None if low == after == high else low,
        at_most=None if low == after == high else high,
        filters=len(known),
        times=sum(weights),
        unknown=len(unknown),
        reason=unknown[0].reason if unknown else "",
    )


def _limits(found: Forecast | Reads) -> tuple[Cost, Cost]:
    then = found.then
    if then is None:
        raise AssertionError("only predictions have limits")
    if isinstance(found, Reads):
        return found.at_least or then, found.at_most or then
    if found.reason.startswith("or fewer"):
        return Cost(blocks=0.0, bytes=0.0, skip=1.0), then
    absent = found.if_absent
    return (absent if absent is not None and absent.blocks < then.blocks else then), then


def read_bytes(cost: Cost) -> float:
    """Returns the bytes of a read, with :data:`OPEN_BYTES` for each block."""
    return cost.bytes + OPEN_BYTES * cost.blocks


def saved_share(gain: CandidateGain) -> float:
    """Returns the part of what the predicted filters read that is saved."""
    before = read_bytes(gain.before)
    return (before - read_bytes(gain.after)) / before if before > 0 else 0.0


def covered_share(gain: CandidateGain) -> float:
    """Returns the part of the filters that are predicted."""
    return gain.filters / (gain.filters + gain.unknown)


def rank(each: Candidate) -> tuple[float, float]:
    """The order of candidates: by what all uses of the filters save, then by the bytes that are freed."""
    gain = each.gain
    saved = 0.0 if gain is None else gain.times * (read_bytes(gain.before) - read_bytes(gain.after))
    return -saved, -(each.freed_bytes or 0.0)


def in_words(base: Candidate, gain: CandidateGain, ends: str = "") -> Candidate:
    """Returns a candidate with its prediction in words."""
    before, after = gain.before, gain.after
    text = (
        f"{base.text}: a filter reads {after.blocks:,.1f} blocks ({size_words(after.bytes)}) on average instead of "
        f"{before.blocks:,.1f} ({size_words(before.bytes)})"
    )
    if gain.at_least is not None and gain.at_most is not None:
        low, high = f"{gain.at_least.blocks:,.1f}", f"{gain.at_most.blocks:,.1f}"
        text += "" if low == high else f", between {low} and {high} blocks"
    text += f"; that is {saved_share(gain):.0%} less where {OPEN_WORDS}"
    if gain.unknown:
        text += f"; not counted: {counted(gain.unknown, 'filter')} that cannot be predicted"
    return msgspec.structs.replace(base, text=text + ends, gain=gain)


def unpredicted(base: Candidate, reason: str) -> Candidate:
    """Returns a candidate that cannot be predicted; ``reason``: what is missing."""
    return msgspec.structs.replace(base, missing=reason)


def first_reason(reads: Sequence[Reads]) -> str:
    return next((each.reason for each in reads if each.then is None), "")


def job_command(kind: str, table: str, **arguments: Any) -> str:
    """Returns the command line that does a job."""
    return shlex.join(["lamella", *command_line(job_kind_named(kind), table, arguments)])


#: Runs of a recluster after a change of the key; it ends earlier when nothing is left.
_RUNS: Final = 10


def key_command(table: str, columns: Sequence[str]) -> str:
    set_key = shlex.join(["lamella", "tables", "cluster-by", "--", table, *columns])
    return f"{set_key} && {job_command('recluster', table, repeat=_RUNS)}"


def index_name(change: IndexChange, taken: set[str]) -> str:
    """Returns a name for an index that no index has."""
    base = re.sub(r"\W+", "_", change.expression, flags=re.ASCII).strip("_").lower()[:40] or "expression"
    base = f"{base if not base[0].isdigit() else 'i_' + base}_{change.kind}"
    name, number = base, 2
    while name in taken:
        name, number = f"{base}_{number}", number + 1
    return name


def size_words(size_bytes: float) -> str:
    """Returns bytes in decimal units: ``1.2 MB``."""
    size, units = float(size_bytes), iter(("bytes", "kB", "MB", "GB", "TB"))
    unit = next(units)
    for following in units:
        if size < 999.95:
            break
        size, unit = size / 1000, following
    return f"{size:,.0f} bytes" if unit == "bytes" else f"{size:,.1f} {unit}"
