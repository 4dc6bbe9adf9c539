"""CHECK constraints: added to a table after all of its rows have been checked.

The service proves by statistics that most blocks have no violating row. The rows of the others are read here, at one
snapshot. The commit adds the constraint only if no row was added since then that may violate it; otherwise all is done
again on the newer snapshot. Writers that began before find a newer schema and must write their rows again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from lamella.client.filters import plain_filter
from lamella.client.rewrite.commit import TableState
from lamella.snapshot.commit.constraints import added_check
from lamella.snapshot.errors import CheckViolation, InvalidRequest, NewMatches, SchemaConflict
from lamella.snapshot.expression import bind, read_filter, sql_of
from lamella.snapshot.row_checks import check_filter, violation
from lamella.snapshot.schema import Check, Schema
from lamella.snapshot.schema.evolution import evolve
from lamella.snapshot.wire import SchemaUpdate

if TYPE_CHECKING:
    from lamella.client.http.lake import Lake
    from lamella.client.http.scan import TableScan

_TRIES: Final = 20
_MAX_SHOWN: Final = 300


def condition_text(condition: Any, schema: Schema) -> str:
    """Return a condition that is a tree or an expression as SQL text, which means the same for a table.

    Raises:
        InvalidRequest: there is no such text.
        InvalidFilter, UnknownColumn, FilterTypeMismatch: the condition cannot be read.
    """
    predicate = read_filter(plain_filter(condition))
    text = sql_of(predicate)
    if bind(read_filter(text), schema) != bind(predicate, schema):
        raise InvalidRequest(f"the condition cannot be written as SQL ({text} means something else): give SQL text")
    return text


def add_check(
    lake: Lake,
    table: TableScan,
    name: str,
    check: Check,
    *,
    storage_options: Mapping[str, Mapping[str, Any]] | None = None,
    workers: int = 8,
) -> str:
    """Add a constraint to a table, of which ``table`` reads the rows; returns the snapshot that has it. See
    :meth:`lamella.client.http.Table.add_check`."""
    change = added_check(check)
    for attempt in range(1, _TRIES + 1):
        state = TableState.read(lake, name)
        schema = state.snapshot.schema
        evolve(schema, [change], history=state.snapshot.history)
        columns = [leaf.reference for leaf in check_filter(check, schema).columns]
        found = table.scan(
            violation(check),
            columns or None,
            limit=1,
            snapshot_id=state.snapshot.snapshot_id,
            time_zone=check.time_zone,
            storage_options=storage_options,
            workers=workers,
        ).to_arrow()
        if found.num_rows:
            shown = ", ".join(f"{column} = {found[column][0].as_py()}" for column in found.column_names)
            raise CheckViolation(
                f"the table has a row for which {check.condition} is false: {shown[:_MAX_SHOWN]}. Change or delete such"
                " rows first",
                constraint=check.name,
            )
        try:
            answer = lake.table(name).commit(
                base_snapshot_id=state.snapshot.snapshot_id,
                operation="schema",
                schema_update=SchemaUpdate(changes=(change,), base_schema_id=schema.schema_id),
            )
        except (NewMatches, SchemaConflict):
            if attempt == _TRIES:
                raise
        else:
            return answer.snapshot_id
    raise AssertionError("unreachable")
