"""Hints about misspelt functions, against the functions that Spark has."""

from __future__ import annotations

from contextlib import suppress

import pytest
from pyspark.sql import SparkSession

from lamella.snapshot.errors import InvalidFilter
from lamella.snapshot.expression.filters import read_filter
from lamella.snapshot.expression.nodes import Unknown

pytestmark = pytest.mark.spark


def test_no_function_of_spark_is_taken_for_a_misspelling(spark: SparkSession) -> None:
    """A function that is not used for pruning, but exists, has no hint."""
    names = [str(row[0]) for row in spark.sql("SHOW FUNCTIONS").collect()]
    names = [name for name in names if name.isidentifier()]
    read, hinted = set(), {}
    for name in names:
        for arguments in ("a", "a, b", "a, b, c"):
            with suppress(InvalidFilter):  # another number of arguments
                found = read_filter(f"{name}({arguments}) = 1")
                read.add(name)
                if isinstance(found, Unknown) and "did you mean" in found.reason:
                    hinted[name] = found.reason
    assert len(read) > 400
    assert hinted == {}
