"""Deleting rows from Spark, by the same job as elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lamella.client.http import Lamella
from lamella.client.jobs.context import JobContext
from lamella.client.jobs.deletion import DeleteResult, delete_rows
from lamella.client.spark.engine import SparkEngine
from lamella.client.spark.lake import service

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def delete(
    spark: SparkSession,
    name: str,
    where: str | Mapping[str, Any],
    *,
    url: str | None = None,
    client: Lamella | None = None,
    compression: str = "zstd",
    storage_options: Mapping[str, Mapping[str, Any]] | None = None,
    scratch: str | None = None,
) -> DeleteResult:
    """Delete the rows of ``namespace.table`` for which ``where`` (SQL text or a JSON tree) is true, in one commit.

    Blocks whose rows all match go by metadata alone; only blocks that may have some are read. Rows that others add
    meanwhile stay. Times without a zone in ``where`` are of the session's. The other arguments are those of
    :func:`lamella.client.spark.write`.

    Raises:
        FilterNotEvaluable: a part of ``where`` cannot be decided row by row; names it. Nothing was done.
        EvaluationFailed: in some row a value that is needed cannot be computed.
        InvalidFilter, UnknownColumn, FilterTypeMismatch, TableNotFound, NamespaceNotFound.
        CommitConflict: others were faster, again and again; nothing was done.
        OutcomeUnknown: the commit may have happened.
    """
    with service(url, client) as lake:
        context = JobContext(
            lake=lake,
            table=name,
            engine=SparkEngine(spark),
            storage_options=storage_options or {},
            scratch=scratch,
            compression=compression,
        )
        return delete_rows(context, where, time_zone=str(spark.conf.get("spark.sql.session.timeZone", "UTC")))
