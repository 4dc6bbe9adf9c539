"""Spark's session, for the judge's tests; it starts only when one of them runs."""

from spark.conftest import spark

__all__ = ["spark"]
