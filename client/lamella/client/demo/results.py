"""What the demo found: ``demo.json``, and one table for people."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from lamella.client.cli.output import percent, print_table, size_text
from lamella.client.demo.queries import NARROW

#: The narrow date range may read so much of the blocks.
NARROW_SHARE = 0.05


class QueryResult(msgspec.Struct, frozen=True, kw_only=True):
    """One query. ``blocks_read`` and ``bytes_read`` (file sizes) are of the files that Spark's tasks were given."""

    name: str
    equal: bool
    blocks_read: int
    blocks_total: int
    bytes_read: int
    bytes_total: int
    seconds: float
    full_scan_seconds: float


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """All queries, in the order they ran."""

    queries: tuple[QueryResult, ...]

    def failures(self) -> list[str]:
        """What is not as it must be, in sentences."""
        found = [f"{q.name}: the answer differs from that of the full scan" for q in self.queries if not q.equal]
        found += [
            f"{q.name}: {q.blocks_read} of {q.blocks_total} blocks were read, more than {NARROW_SHARE:.0%}"
            for q in self.queries
            if q.name == NARROW and q.blocks_read > NARROW_SHARE * q.blocks_total
        ]
        return found

    def write(self, file: Path) -> None:
        """Replace ``file`` in one step."""
        partial = file.with_name(file.name + ".partial")
        partial.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")
        os.replace(partial, file)

    def show(self) -> None:
        """Print the table."""
        print_table(
            [
                "query",
                ("blocks read", "right"),
                ("%", "right"),
                ("bytes read", "right"),
                ("%", "right"),
                ("Lamella", "right"),
                ("full scan", "right"),
                "answers",
            ],
            [
                (
                    q.name,
                    f"{q.blocks_read:,} of {q.blocks_total:,}",
                    percent(q.blocks_read, q.blocks_total),
                    f"{size_text(q.bytes_read)} of {size_text(q.bytes_total)}",
                    percent(q.bytes_read, q.bytes_total),
                    f"{q.seconds:.2f} s",
                    f"{q.full_scan_seconds:.2f} s",
                    "equal" if q.equal else "DIFFERENT",
                )
                for q in self.queries
            ],
        )
