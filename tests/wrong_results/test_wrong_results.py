"""The public wrong-result cases, end to end: Lamella has to be right in all of them; others are written down."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pyspark
import pytest
from pyspark.sql import SparkSession

from lamella.client.http import Lamella
from spark.lakes import fresh
from wrong_results import cases_floats, cases_language, cases_nulls, cases_order, cases_pages, cases_text, cases_time
from wrong_results.case import Case, CaseWriter
from wrong_results.engines import (
    Answer,
    Engine,
    by_duckdb,
    lamella_python,
    lamella_spark,
    plain_spark,
    pyarrow_dataset,
)
from wrong_results.report import page

pytestmark = pytest.mark.spark

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "wrong-results.md"
FAMILIES = {
    "NaN and signed zero": cases_floats.CASES,
    "Nulls": cases_nulls.CASES,
    "Orders and precision": cases_order.CASES,
    "Text": cases_text.CASES,
    "Pages and places": cases_pages.CASES,
    "Time": cases_time.CASES,
    "Expressions and nesting": cases_language.CASES,
}
CASES = [case for cases in FAMILIES.values() for case in cases]
LAMELLA = {"Lamella, Spark SQL": "spark", "Lamella, Python": "python"}


@pytest.fixture(scope="module")
def engines(spark: SparkSession, judged: Lamella) -> dict[str, Engine]:
    """Everyone who answers, by the name of the column."""
    return {
        "Lamella, Spark SQL": lamella_spark(spark),
        "Lamella, Python": lamella_python(judged),
        "Spark": plain_spark(spark),
        "pyarrow": pyarrow_dataset,
        "DuckDB": by_duckdb,
    }


def registered(lake: Lamella, case: Case, paths: Sequence[str], folder: Path) -> str:
    """Make these files a table of the service; returns its name."""
    namespace = fresh("wrong")
    lake.create_namespace(namespace)
    name = f"{namespace}.t"
    example = paths[0]
    if case.schema is not None:
        example = str(folder / "_schema.parquet")
        pq.write_table(case.schema.empty_table(), example)
    lake.create_table(name, schema_from=example)
    answer = lake.table(name).register(list(paths), strict=True)
    assert answer.registered == len(paths)
    return name


@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_lamella_gives_the_right_rows(
    spark: SparkSession, judged: Lamella, engines: dict[str, Engine], case: Case, tmp_path: Path
) -> None:
    """Every query finds exactly the rows that match by their values, through Spark SQL and by the Python reader."""
    paths = case.make(CaseWriter(tmp_path, spark))
    table = registered(judged, case, paths, tmp_path)
    answers = {name: engines[name](case, paths, table) for name in LAMELLA}
    wrong = []
    for name, short in LAMELLA.items():
        for query, answer in zip(case.queries, answers[name], strict=True):
            truth = case.truth(query)
            refused = short in case.refused and (answer.error or "").startswith("refused")
            if answer.ids != truth and not refused:
                wrong.append(f"{name}: {query.sql}: {answer}, the truth is {truth}")
    assert wrong == []


@pytest.mark.soak
def test_the_page_shows_what_was_found(
    spark: SparkSession, judged: Lamella, engines: dict[str, Engine], tmp_path: Path
) -> None:
    """docs/wrong-results.md has the answers of all; ``make wrong-results`` writes it."""
    found: dict[str, dict[str, Sequence[Answer]]] = {}
    for case in CASES:
        folder = tmp_path / case.id
        folder.mkdir()
        paths = case.make(CaseWriter(folder, spark))
        table = registered(judged, case, paths, folder)
        found[case.id] = {name: engine(case, paths, table) for name, engine in engines.items()}
    versions = {"Spark": pyspark.__version__, "pyarrow": pa.__version__, "DuckDB": duckdb.__version__}
    text = page(FAMILIES, found, versions)
    if os.environ.get("LAMELLA_WRITE_DOCS") == "1":
        DOCUMENT.write_text(text, encoding="utf-8")
    assert DOCUMENT.read_text(encoding="utf-8") == text
