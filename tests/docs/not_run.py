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
    NotRun("docs/cli.md", r"lamella update", "starts Spark anew; docs/rewriting.md updates in the session of the tests"),
    NotRun("docs/spark.md", r"spark-submit .*__main__", "needs a cluster; tests/spark/test_cluster.py runs it on one"),
    NotRun("docs/spark.md", r"cp lamella-<version>", "needs a wheel; tests/spark/test_cluster.py builds and sends it"),
    NotRun("docs/spark.md", r"spark-submit .*--py-files", "the same"),
)
