"""What a job would do, before anybody asks for it: read from what the service knows, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, cast

import msgspec

from lamella.service.catalog import TableRecord
from lamella.service.dashboard import words
from lamella.service.dashboard.job_facts import Fact, fact
from lamella.service.dashboard.job_touches import Touches
from lamella.service.dashboard.previewing import Column, Listing, Preview, nothing_kept
from lamella.service.services import Services
from lamella.service.state import trusted_manifests
from lamella.snapshot.jobs import JobKind
from lamella.snapshot.wire import PlanAnswer, PlanRequest, RegroupAnswer, RegroupRequest

#: So many tasks of a plan are shown.
_LISTED: Final = 20
_BOUNDS: Final = ("max_bytes", "max_blocks", "target_rows", "target_bytes", "target_depth", "min_gain")
_REGROUP: Final = msgspec.json.Decoder(RegroupAnswer)
_COLUMNS: Final = tuple(
    Column(name=name, is_number=True)
    for name in ("Task", "Blocks", "Rows", "Size", "Become", "Look-up reads less", "Bytes less")
)


class Previews:
    """Makes them, by kind; those of kinds that other packages bring say that there is none."""

    def __init__(self, services: Services) -> None:
        self._services = services
        touches = Touches(services)
        self._made: dict[str, Callable[[TableRecord, Mapping[str, Any]], Preview]] = {
            "compact": lambda table, values: self._rewriting(table, "compact", values),
            "recluster": lambda table, values: self._rewriting(table, "recluster", values),
            "regroup": self._regrouping,
            "index_refresh": touches.index_refresh,
            "delete": touches.delete,
            "update": touches.update,
            "vacuum": touches.vacuum,
            "verify": touches.verify,
            "refresh": touches.refresh,
        }
        self._vacuum_dropped = touches.vacuum_dropped

    def of(self, kind: JobKind, table: str | None, values: Mapping[str, Any]) -> Preview:
        """What a job with these arguments would do now.

        Raises:
            NamespaceNotFound, TableNotFound: the table.
            LamellaError: the job would fail at once with it: a filter that cannot be read, no cluster key.
        """
        if kind.name == "vacuum_dropped":
            return self._vacuum_dropped(values)
        record = None
        if table is not None:
            namespace, _, name = table.rpartition(".")
            record = self._services.table(namespace, name)
        make = self._made.get(kind.name)
        if make is None or record is None:
            return Preview(says=f"{kind.text} What exactly, the service cannot tell beforehand.")
        return make(record, values)

    def _rewriting(
        self, table: TableRecord, job: Literal["compact", "recluster"], values: Mapping[str, Any]
    ) -> Preview:
        bounds = {name: values[name] for name in _BOUNDS if name in values}
        asked = msgspec.structs.replace(PlanRequest(job=job, filter=values.get("where")), **bounds)
        with trusted_manifests():
            plan = self._services.warehouse.planning.plan(table.pointer, asked)
        blocks = sum(len(task.blocks) for task in plan.tasks)
        if not blocks:
            return Preview(
                says=f"Nothing is to be done: {plan.reason}.", tone="warn", facts=self._as_it_is(table, plan)
            )
        size_bytes = sum(task.file_size_bytes for task in plan.tasks)
        pieces = sum(task.pieces for task in plan.tasks)
        share = words.percent(size_bytes / plan.file_size_bytes_total if plan.file_size_bytes_total else None)
        facts = [
            fact("Tasks", len(plan.tasks)),
            fact("Blocks that are rewritten", f"{words.count(blocks)} of {words.count(plan.blocks_total)}"),
            fact("Bytes that are rewritten", f"{words.size(size_bytes)}, {share} of the table"),
            fact("Into", f"about {_blocks(pieces)}"),
        ]
        if job == "recluster":
            saved = sum(task.blocks_saved for task in plan.tasks)
            saved_bytes = sum(task.bytes_saved for task in plan.tasks)
            text = f"{_less(saved, f'{abs(saved):.1f} blocks')}, {_less(saved_bytes, words.size(abs(saved_bytes)))}"
            facts.append(fact("A look-up of a thousandth of the rows reads", text))
        left = []
        if plan.remaining_blocks:
            left.append(_blocks(plan.remaining_blocks))
        if plan.remaining_bytes:
            left.append(words.size(plan.remaining_bytes))
        facts.append(fact("Left for later runs", f"about {', '.join(left)}" if left else "nothing"))
        does = "are written together into" if job == "compact" else "are sorted anew, into"
        return Preview(
            says=f"{_blocks(blocks)} ({words.size(size_bytes)}) {does} about {_blocks(pieces)}.",
            tone="good",
            facts=(*facts, *self._as_it_is(table, plan)),
            listing=_tasks(plan, job),
            notes=(words.sentence(f"{plan.reason}."),) if plan.reason else (),
        )

    def _as_it_is(self, table: TableRecord, plan: PlanAnswer) -> tuple[Fact, ...]:
        """How deep blocks lie on the table's cluster key now."""
        if not plan.cluster_key or not plan.blocks_total:
            return ()
        figures = self._services.clustering.figures(table, (), "linear", snapshot_id=plan.snapshot_id, recorded=0)
        depth = figures.depth
        about = "" if depth.is_exact else ", of a sample"
        return (
            fact("Cluster key", f"{', '.join(plan.cluster_key)} ({plan.cluster_kind})"),
            fact("Depth now", f"{depth.average_depth:.1f} on average, {depth.max_depth} at most{about}"),
            fact("Small blocks now", f"{words.count(figures.small_blocks)} of {words.count(figures.blocks)}"),
        )

    def _regrouping(self, table: TableRecord, values: Mapping[str, Any]) -> Preview:
        by = tuple(filter(None, (part.strip() for part in str(values.get("by", "")).split(","))))
        asked = RegroupRequest(
            key=by,
            kind=values.get("kind", "linear"),
            max_segments=values.get("max_segments"),
            target_depth=values.get("target_depth"),
            min_gain=values.get("min_gain"),
            dry_run=True,
        )
        sealed = self._services.clustering.regroup(table, asked, nothing_kept(self._services))
        answer = _REGROUP.decode(cast("Any", sealed).body)
        if not answer.groups:
            return Preview(says=f"Nothing is to be done: {answer.reason}.", tone="warn")
        return Preview(
            says=f"{words.plural(answer.replaced, 'segment')} become {words.count(answer.made)}. No data is written.",
            tone="good",
            facts=(
                fact("Segments replaced", answer.replaced),
                fact("Segments made", answer.made),
                fact("Blocks that move", answer.blocks),
                fact(
                    "A look-up of a thousandth of the rows is sent to",
                    f"{answer.predicted_before:.1f} segments now, {answer.predicted_after:.1f} then, as predicted",
                ),
                fact("Left for later parts", words.plural(answer.remaining, "segment")),
            ),
            notes=(words.sentence(f"{answer.reason}."),) if answer.reason else (),
        )


def _less(saved: float, text: str) -> str:
    return f"{text} {'less' if saved >= 0 else 'more'}"


def _blocks(count: int) -> str:
    return words.plural(count, "block")


def _tasks(plan: PlanAnswer, job: str) -> Listing:
    columns = _COLUMNS if job == "recluster" else _COLUMNS[:-2]
    rows = [
        (
            words.count(number),
            words.count(len(task.blocks)),
            words.count(task.row_count),
            words.size(task.file_size_bytes),
            words.count(task.pieces),
            f"{task.blocks_saved:.2f}",
            f"{'-' if task.bytes_saved < 0 else ''}{words.size(abs(task.bytes_saved))}",
        )[: len(columns)]
        for number, task in enumerate(plan.tasks[:_LISTED], 1)
    ]
    more = f"; the first {_LISTED} of {len(plan.tasks):,}" if len(plan.tasks) > _LISTED else ""
    return Listing(caption=f"Tasks, those that help most first{more}", columns=columns, rows=tuple(rows))
