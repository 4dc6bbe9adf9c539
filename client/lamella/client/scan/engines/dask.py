"""A scan as a frame of Dask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from lamella.client.scan.engines.source import Part, Source
from lamella.client.scan.rows import arrow_frame, library

if TYPE_CHECKING:
    import dask.dataframe
    import pandas


def dask_frame(scan: Source) -> dask.dataframe.DataFrame:
    """Return a frame with one partition per block of a scan."""
    frames = library("dask.dataframe", "to_dask", "dask")
    parts = scan.fragments()
    empty = arrow_frame(scan.schema.empty_table())
    if not parts:
        return cast("dask.dataframe.DataFrame", frames.from_pandas(empty, npartitions=1))
    return cast("dask.dataframe.DataFrame", frames.from_map(read_frame, parts, meta=empty))


def read_frame(fragment: Part, columns: Sequence[str] | None = None) -> pandas.DataFrame:
    """Return the rows of a block, with types that do not depend on nulls. Dask asks for the columns that it needs."""
    if columns is None:
        return arrow_frame(fragment.to_arrow())
    wanted = list(columns)
    read = fragment.with_columns(wanted or fragment.schema.names[:1])
    return arrow_frame(read.to_arrow())[wanted]
