"""What a span says of a prune: figures of its stages, and never what was asked."""

from __future__ import annotations

from lamella.service.tracing.port import Span
from lamella.snapshot.prune.found import Found


def tell_of_prune(span: Span, found: Found | None) -> None:
    """``found`` None: it would have taken too long on the event loop, and is done in a thread instead."""
    if found is None:
        span.note({"lamella.prune.is_postponed": True})
        return
    answer = found.answer
    report = answer.report
    span.note(
        {
            "lamella.snapshot_id": answer.snapshot_id,
            "lamella.prune.blocks": found.block_count,
            "lamella.prune.is_complete": answer.complete,
            "lamella.prune.not_used": len(report.not_used),
        }
    )
    passed_s = 0.0
    for stage in report.stages:
        passed_s += stage.ms / 1000
        span.event(
            stage.stage,
            passed_s,
            {
                "lamella.prune.considered": stage.considered,
                "lamella.prune.kept": stage.kept,
                "lamella.prune.kept_bytes": stage.bytes,
                "lamella.prune.ms": stage.ms,
            },
        )
