"""Random UPDATE, DELETE and MERGE statements leave the rows that they mean, and fail as they must."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession

from spark.lakes import Lakes
from spark.row_statements import History

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("seed", "statements"), [(0, 4), *(pytest.param(seed, 10, marks=pytest.mark.soak) for seed in range(202))]
)
def test_a_random_statement_leaves_the_rows_that_it_means(
    spark: SparkSession, lakes: Lakes, seed: int, statements: int
) -> None:
    """Rows, and conditions of errors, are those of the same statement as a query; the table is verified at the end."""
    history = History(spark, lakes, random.Random(seed))
    history.begin()
    for _ in range(statements):
        history.step()
    history.check_table()
