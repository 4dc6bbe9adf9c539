"""The Spark session of these tests is the one that all tests of Spark share."""

from spark.conftest import spark  # noqa: F401  # fixtures are found by name
