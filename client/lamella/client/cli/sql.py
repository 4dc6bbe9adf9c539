"""``lamella sql``: a query of DuckDB over tables of the service.

DuckDB's optimizer says which columns and rows of a table a query needs. It is asked for the plan of the query over
tables of the same columns that hold one row of nulls, without the rules that look at data, so what it says holds for
any rows. Only filters whose meaning is the same here and there are taken from the plan; DuckDB applies all of them
again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from lamella.client.cli.arguments import store_options
from lamella.client.cli.connection import Session, with_session
from lamella.client.cli.failure import needs_extra
from lamella.client.cli.rows import RowFormat, write_rows
from lamella.snapshot.errors import LamellaError

if TYPE_CHECKING:
    import pyarrow as pa

    from lamella.client.http import Lamella, Table
    from lamella.client.scan import Scan

_PAIR: Final = re.compile(r'(\w+|"[^"]+")\s*\.\s*(\w+|"[^"]+")')
#: What follows FROM or JOIN.
_READ: Final = re.compile(r'\b(?:FROM|JOIN)\s+(\w+|"[^"]+")\s*\.\s*(\w+|"[^"]+")', re.IGNORECASE)
_QUOTE: Final = '"'
_ATOM: Final = r"(\w+) (?:(=|<|>|<=|>=) (-?\d{1,18}|'[^'\\\x00-\x1f]*')|(IS NOT NULL))"
#: One comparison, or several that are joined by AND.
_CONJUNCTION: Final = re.compile(rf"\({_ATOM}\)|\(\({_ATOM}\)(?: AND \({_ATOM}\))+\)")
_ATOMS: Final = re.compile(rf"\({_ATOM}\)")


class TableNeed(msgspec.Struct, frozen=True, kw_only=True):
    """What a query reads of a table: ``columns`` in the table's order, rows that match ``filter`` (None: all), in so
    many ``scans``."""

    columns: tuple[str, ...]
    filter: str | None
    scans: int


@click.command()
@click.argument("query", metavar="QUERY")
@click.option("--explain", is_flag=True, help="Show what is read of each table instead of running the query.")
@store_options
@with_session()
def sql(
    session: Session,
    query: str,
    explain: bool,
    storage_options: Mapping[str, Mapping[str, Any]],
) -> None:
    """Run a query of DuckDB over tables, which are named NAMESPACE.TABLE, as they all are at one moment.

    The columns and filters that DuckDB pushes down to a table decide which blocks are read. Needs lamella[duckdb].
    """
    with needs_extra("duckdb"):
        import duckdb
    options = storage_options or None
    named = _named(session.lake, query)
    at = session.lake.current_snapshots(*named) if named else {}
    tables = {name: session.lake.table(name).scan(snapshot_id=at[name], storage_options=options) for name in named}
    try:
        needs = needs_of(query, {name: _marked(scan.schema, session.lake.table(name)) for name, scan in tables.items()})
        scans = {
            name: session.lake.table(name).scan(
                need.filter,
                need.columns,
                snapshot_id=at[name],
                storage_options=options,
            )
            for name, need in needs.items()
        }
        if explain:
            _show_needs(session.form, needs, scans)
            return
        result = _run(query, {name: scan.schema for name, scan in tables.items()}, needs, scans)
    except duckdb.Error as error:
        for name in _read(query):
            if name not in tables:
                session.lake.table(name).info()  # raises the service's error, which names a similar one
        raise click.ClickException(_message(error)) from error
    write_rows(session.form, result.schema.names, _json_rows(result))


def needs_of(query: str, schemas: Mapping[str, pa.Schema]) -> dict[str, TableNeed]:
    """Return what a query reads of each of its tables (``namespace.table``); raises the errors of DuckDB."""
    import duckdb

    with duckdb.connect() as connection:
        # By statistics the optimizer would conclude from the one row.
        connection.execute("SET disabled_optimizers = 'statistics_propagation'")
        for name, schema in schemas.items():
            _create_schema(connection, name)
            connection.register("lamella_nulls", _nulls(schema))
            connection.execute(f"CREATE TABLE {_quoted(name)} AS SELECT * FROM lamella_nulls")  # noqa: S608  # quoted
            connection.unregister("lamella_nulls")
        (plan,) = json.loads(connection.execute(f"EXPLAIN (FORMAT json) {query}").fetchall()[0][1])
    found: dict[str, list[Mapping[str, Any]]] = {name: [] for name in schemas}
    for node in _nodes(plan):
        name = str(node.get("extra_info", {}).get("Table", "")).removeprefix("memory.").replace('"', "")
        if name in found:
            found[name].append(node["extra_info"])
    return {name: _need(schemas[name], scans) for name, scans in found.items() if scans}


def _marked(schema: pa.Schema, table: Table) -> pa.Schema:
    """Return a schema in which columns of type ``string`` alone are ``pa.string()``; ``char`` compares otherwise."""
    import pyarrow as pa

    plain = {column.name for column in table.info().schema.columns if column.type == "string"}
    return pa.schema(
        [
            field.with_type(pa.large_string()) if pa.types.is_string(field.type) and field.name not in plain else field
            for field in schema
        ]
    )


def _need(schema: pa.Schema, scans: Sequence[Mapping[str, Any]]) -> TableNeed:
    texts = [[text for text in _list(scan.get("Filters")) if not text.startswith("optional:")] for scan in scans]
    words = {word for scan in scans for text in _list(scan.get("Filters")) for word in _words(text, schema)}
    words |= {name for scan in scans for name in _list(scan.get("Projections"))}
    columns = tuple(name for name in schema.names if name in words) or tuple(schema.names[:1])
    # What all scans of the table ask for; each may ask for more.
    shared = set.intersection(*({atom for text in each for atom in _atoms(text, schema)} for each in texts))
    return TableNeed(columns=columns, filter=" AND ".join(sorted(shared)) or None, scans=len(scans))


def _words(text: str, schema: pa.Schema) -> Iterator[str]:
    """Yield the columns that a filter may mention."""
    return (name for name in schema.names if name in text)


def _atoms(text: str, schema: pa.Schema) -> Iterator[str]:
    """Yield the comparisons of a filter that mean the same in Spark's dialect: of integers, and of text by bytes."""
    import pyarrow as pa

    if not _CONJUNCTION.fullmatch(text):
        return
    for name, operator, literal, is_not_null in _ATOMS.findall(text):
        if schema.names.count(name) != 1:
            continue
        kind = schema.field(name).type
        is_text = literal.startswith("'")
        if is_not_null:
            yield f"`{name}` IS NOT NULL"
        elif pa.types.is_string(kind) if is_text else pa.types.is_signed_integer(kind):
            yield f"`{name}` {operator} {literal}"


def _run(
    query: str, schemas: Mapping[str, pa.Schema], needs: Mapping[str, TableNeed], scans: Mapping[str, Scan]
) -> pa.Table:
    import duckdb

    with duckdb.connect() as connection:
        for number, (name, schema) in enumerate(schemas.items()):
            _create_schema(connection, name)
            need = needs.get(name)
            rows: Any = _nulls(schema)
            if need is not None:
                # A stream can be read once.
                rows = scans[name].to_arrow() if need.scans > 1 else scans[name].to_reader()
            source = f"lamella_{number}"
            connection.register(source, rows)
            connection.register(f"{source}_types", _nulls(schema))
            types = connection.execute(f"DESCRIBE {source}_types").fetchall()
            # A column that the query does not read has to be there, for its name to be known.
            columns = ", ".join(
                _identifier(column)
                if need is None or column in need.columns
                else f"CAST(NULL AS {kind}) AS {_identifier(column)}"
                for column, kind, *_ in types
            )
            connection.execute(f"CREATE VIEW {_quoted(name)} AS SELECT {columns} FROM {source}")  # noqa: S608  # quoted
        found = connection.sql(query)
        if found is None:
            raise click.UsageError("the statement has no rows: give a query")
        return found.to_arrow_table()


def _named(lake: Lamella, query: str) -> list[str]:
    """Return the tables that a query may name."""
    pairs = {(first.strip('"'), second.strip('"')) for first, second in _PAIR.findall(query)}
    known = {space.name for space in lake.namespaces()} & {first for first, _ in pairs}
    return sorted(f"{space}.{name}" for space in known for name in lake.tables(space) if (space, name) in pairs)


def _read(query: str) -> list[str]:
    """Return what a query reads from, as far as it looks like tables of the service."""
    return [f"{space.strip(_QUOTE)}.{name.strip(_QUOTE)}" for space, name in _READ.findall(query)]


def _message(error: Exception) -> str:
    """Return DuckDB's message without its copy of the query, which is not the one that was given."""
    text = str(error).partition("\n\nLINE ")[0]
    return f'{text}; names that are words of SQL need quotes, such as "at"' if text.startswith("Parser Error") else text


def _nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for child in plan.get("children", ()):
        yield from _nodes(child)


def _list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) and value else list(value or ())


def _nulls(schema: pa.Schema) -> pa.Table:
    import pyarrow as pa

    return pa.table([pa.nulls(1, field.type) for field in schema], names=schema.names)


def _create_schema(connection: Any, name: str) -> None:
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_identifier(name.rpartition('.')[0])}")


def _quoted(name: str) -> str:
    namespace, _, table = name.rpartition(".")
    return f"{_identifier(namespace)}.{_identifier(table)}"


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _json_rows(result: pa.Table) -> Iterator[list[Any]]:
    """Yield the rows as JSON values; a type of DuckDB that a table cannot have is text."""
    columns = [_json_values(values) for values in result.columns]
    return (list(row) for row in zip(*columns, strict=True))


def _json_values(values: pa.ChunkedArray) -> list[Any]:
    import pyarrow as pa

    from lamella.client.write.arrow_types import columns_of
    from lamella.snapshot.rows.columns import read_columns
    from lamella.snapshot.rows.json_values import json_rows
    from lamella.snapshot.schema import Schema

    table = pa.table([values], names=["v"])
    try:
        read = read_columns(Schema.assign(columns_of(table.schema)), None, case_sensitive=True)
    except LamellaError:
        return [None if value is None else str(value) for value in values.to_pylist()]
    return [row[0] for row in json_rows(table, read)]


def _show_needs(form: RowFormat, needs: Mapping[str, TableNeed], scans: Mapping[str, Scan]) -> None:
    rows = []
    for name, need in needs.items():
        rows.append(
            [
                name,
                ", ".join(need.columns),
                need.filter,
                len(scans[name].fragments()),
                scans[name].plan.report.blocks_total,
            ]
        )
    write_rows(form, ["table", "columns", "filter", "blocks", "of"], rows)
