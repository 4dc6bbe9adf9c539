"""A scan as a dataset of pyarrow, which DuckDB and others read with filters and columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs

from lamella.client.filters.arrow import Call, Field, Node, read_expression
from lamella.client.filters.may_match import conjuncts, of_arrow
from lamella.client.scan.engines.source import Source
from lamella.snapshot.errors import InvalidFilter

#: What a scanner of pyarrow accepts that is not about rows; it is passed on.
_OPTIONS: Final = frozenset({"batch_size", "batch_readahead", "fragment_readahead", "use_threads", "memory_pool"})
#: What it also accepts, and has no meaning here.
_IGNORED: Final = frozenset({"fragment_scan_options", "cache_metadata"})

Columns = Sequence[str] | Mapping[str, pc.Expression] | None


class TableDataset(ds.UnionDataset):  # type: ignore[misc]  # pyarrow has no types
    """The rows of a scan of one snapshot. Filters and columns decide what is read, and pyarrow filters the rows.

    It has no files: what is only possible with files, such as a join of two datasets, is an error.
    """

    def __init__(self, scan: Source, filter: pc.Expression | None = None) -> None:
        super().__init__(scan.schema, [_unreadable(scan.schema)])
        self._scan = scan
        self._filter = filter

    def __reduce__(self) -> tuple[Callable[..., TableDataset], tuple[Any, ...]]:
        return type(self), (self._scan, self._filter)

    def scanner(self, columns: Columns = None, filter: pc.Expression | None = None, **options: Any) -> ds.Scanner:
        """Return a scanner, which can be read once; the options are those of pyarrow."""
        both = _and(self._filter, filter)
        needed = _needed(self.schema, columns, both)
        part = self._part(needed, both)
        return ds.Scanner.from_batches(
            cast("Iterator[pa.RecordBatch]", part.to_batches()),
            schema=part.schema,
            columns=columns if columns is None or isinstance(columns, Mapping) else list(columns),
            filter=both,
            **_options(options),
        )

    def filter(self, expression: pc.Expression) -> TableDataset:
        """Return the dataset with a filter for whatever reads it."""
        return type(self)(self._scan, _and(self._filter, expression))

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[Any]:
        """Refuse: ``fragments()`` of a scan returns its parts, which pyarrow cannot read by itself."""
        raise NotImplementedError("a Lamella table has no fragments for pyarrow: use Table.scan(...).fragments()")

    def count_rows(self, filter: pc.Expression | None = None, **options: Any) -> int:
        """Return the number of rows; without a filter from statistics, where they prove it."""
        if filter is None and self._filter is None:
            return self._scan.narrowed().count()
        return int(self.scanner(columns=[], filter=filter, **options).count_rows())

    def _part(self, needed: Sequence[str] | None, filter: pc.Expression | None) -> Source:
        known = None if filter is None else of_arrow(filter, self.schema)
        return self._scan.narrowed(needed, conjuncts(known) if known is not None else ())


def _and(first: pc.Expression | None, second: pc.Expression | None) -> pc.Expression | None:
    if first is None or second is None:
        return second if first is None else first
    return first & second


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    unknown = given.keys() - _OPTIONS - _IGNORED
    if unknown:
        raise TypeError(f"scanner() has no argument {min(unknown)!r}")
    return {name: value for name, value in given.items() if name in _OPTIONS}


def _needed(schema: pa.Schema, columns: Columns, filter: pc.Expression | None) -> list[str] | None:
    """Return the columns that a projection and a filter use, in the schema's order; None: all."""
    if columns is None:
        return None
    used: set[str] = set() if isinstance(columns, Mapping) else {str(name) for name in columns}
    expressions = [*(columns.values() if isinstance(columns, Mapping) else ()), *([] if filter is None else [filter])]
    try:
        for expression in expressions:
            used |= columns_in(read_expression(expression))
    except InvalidFilter:
        return None
    return [name for name in schema.names if name in used] or schema.names[:1]


def columns_in(node: Node) -> set[str]:
    """Return the top-level columns that an expression uses."""
    if isinstance(node, Field):
        return {node.path[0]}
    if isinstance(node, Call):
        return set[str]().union(*map(columns_in, node.arguments))
    return set()


class _NoFiles(pyarrow.fs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """A file system that opens nothing: what pyarrow reads past this module is an error, and not a table without
    rows."""

    def _refused(self, *arguments: Any, **options: Any) -> Any:
        raise NotImplementedError("pyarrow cannot do this with a Lamella table: read it with to_table() first")

    def get_type_name(self) -> str:
        """Return a name, which pyarrow asks for."""
        return "lamella"

    def normalize_path(self, path: str) -> str:
        """Return the path unchanged."""
        return path

    get_file_info = get_file_info_selector = _refused
    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = move = copy_file = _refused
    open_input_stream = open_input_file = open_output_stream = open_append_stream = _refused


def _unreadable(schema: pa.Schema) -> ds.Dataset:
    """Return a dataset whose rows cannot be read."""
    format_ = ds.ParquetFileFormat()
    fragment = format_.make_fragment("table", filesystem=pyarrow.fs.PyFileSystem(_NoFiles()))
    return ds.FileSystemDataset([fragment], schema, format_)
