"""Commands on pages that no test runs, each with the reason. What is not met on its page any more fails a test."""

from __future__ import annotations

import re

import msgspec


class NotRun(msgspec.Struct, frozen=True):
    """Commands of a page that begin as the expression says."""

    page: str
    begins: str
    reason: str

    def is_about(self, page: str, command: str) -> bool:
        """True for a command of this page that is meant."""
        return page == self.page and re.match(self.begins, command, re.DOTALL) is not None


NOT_RUN = (
    NotRun(
        "docs/arrivals.md",
        r"lamella arrivals watch .*--queue",
        "needs a queue; tests/arrivals/test_queue.py runs it with one",
    ),
    NotRun(
        "docs/cli.md", r"lamella update", "starts Spark anew; docs/rewriting.md updates in the session of the tests"
    ),
    NotRun("docs/dbt.md", r"lamella serve", "tests/examples/test_dbt.py starts one"),
    NotRun("docs/dbt.md", r"python -m lamella\.client\.spark\.connect_server", "the same"),
    NotRun("docs/dbt.md", r"pip install", "the environment of requirements-dbt.lock has these"),
    NotRun("docs/dbt.md", r"dbt ", "the same, with the project in examples/dbt"),
    NotRun("docs/orchestration.md", r"LAMELLA_URL=\S+ dagster dev", "serves; tests/examples/test_orchestration.py"),
    NotRun("docs/deploy.md", r"make stack", "takes a minute; tests/deploy runs it, with all profiles and without"),
    NotRun("docs/deploy.md", r"make secrets", "writes into the repository; tests/test_deploy.py makes them elsewhere"),
    NotRun(
        "docs/deploy.md", r"docker compose", "needs a container engine; tests/deploy runs the same file without one"
    ),
    NotRun("docs/deploy.md", r"kubectl create", "needs a cluster"),
    NotRun("docs/deploy.md", r"helm install", "needs a cluster; tests/deploy/test_chart.py renders the chart"),
    NotRun(
        "docs/operations.md", r"python scripts/backup_drill", "takes long; tests/service/test_backup_drill.py runs it"
    ),
    NotRun("docs/spark.md", r"spark-submit .*__main__", "needs a cluster; tests/spark/test_cluster.py runs it on one"),
    NotRun(
        "docs/spark.md",
        r"python -m lamella\.client\.spark\.connect_server",
        "serves until it is ended; tests/spark/test_connect_server.py",
    ),
    NotRun("docs/spark.md", r"cp lamella-<version>", "needs a wheel; tests/spark/test_cluster.py builds and sends it"),
    NotRun("docs/spark.md", r"spark-submit .*--py-files", "the same"),
)
