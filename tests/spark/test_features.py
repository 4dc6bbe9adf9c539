"""docs/comparison.md says what Spark statements do on tables of Lamella; this runs them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lamella.client.spark import Attached

BENCH = Path(__file__).resolve().parents[2] / "bench"

pytestmark = [pytest.mark.spark, pytest.mark.soak]


def test_statements_do_what_the_comparison_says(
    spark: SparkSession, attached: Attached, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every row of the table, as the page shows it."""
    assert attached.mode == "catalog"
    monkeypatch.setattr(sys, "path", [*sys.path, str(BENCH)])
    import spark_features

    recorded = json.loads(spark_features.RECORDED.read_text("utf-8"))
    found = dict(spark_features.answers(spark, "lamella", tmp_path))
    assert {name: spark_features.cell(answer) for name, answer in found.items()} == {
        name: spark_features.cell(answer) for name, answer in recorded["lamella"]["answers"].items()
    }
    assert spark_features.table(recorded) in spark_features.PAGE.read_text("utf-8")
