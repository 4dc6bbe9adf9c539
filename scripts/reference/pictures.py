"""The pictures of docs/concepts.md."""

from __future__ import annotations

from reference.drawing import Drawing

#: Blocks of the layout picture: low and high of the key, before and after.
_BEFORE = ((0, 62), (8, 96), (15, 70), (30, 100), (2, 48), (41, 93))
_AFTER = ((0, 17), (17, 33), (33, 50), (50, 66), (66, 83), (83, 100))


def pictures() -> dict[str, str]:
    """Return the files by name below docs/images."""
    return {
        "tree.svg": tree(),
        "outcomes.svg": outcomes(),
        "clustering.svg": clustering(),
        "commit.svg": commit(),
        "reading.svg": reading(),
    }


def tree() -> str:
    """The structure of a table."""
    d = Drawing(
        860,
        400,
        "What a table consists of",
        "The catalog's pointer names a snapshot; it lists segments, each of about a thousand blocks; a block is a "
        "Parquet file with pages. Snapshots and segments have a JSON manifest and a columnar sidecar.",
    )
    d.box(20, 24, 140, 40, "part", "catalog row")
    d.text(20, 82, "name → current snapshot;", "small")
    d.text(20, 98, "the one thing that changes", "small")
    d.line((160, 44), (250, 44), arrow=True)
    d.box(250, 24, 130, 40, "kept", "snapshot")
    d.box(250, 70, 130, 28, "part", "sidecar")
    d.text(400, 41, "columns, cluster key, indexes, one summary of everything:")
    d.text(400, 59, "rows, bytes, and min, max, nulls, NaN of every column", "small")
    d.text(400, 89, "the summaries of all segments, as columns", "small")
    for n in range(3):
        x = 250 + n * 200
        d.line((315, 98), (315, 118), (x + 65, 118), (x + 65, 140), arrow=True)
        d.box(x, 140, 130, 40, "kept" if n == 1 else "out", "" if n != 1 else "segment")
        d.box(x, 186, 130, 28, "part", "sidecar")
    d.text(20, 158, "segments", "strong")
    d.text(20, 176, "about 1,000 blocks each,", "small")
    d.text(20, 192, "with a summary of them", "small")
    for n in range(6):
        d.box(386 + n * 47, 250, 38, 40, "kept" if n == 2 else "out")
    d.line((515, 214), (515, 232), (499, 232), (499, 250), arrow=True)
    d.text(20, 264, "blocks", "strong")
    d.text(20, 282, "one Parquet file each; statistics by column,", "small")
    d.text(20, 298, "taken from its footer or from its values", "small")
    for n in range(8):
        d.box(425 + n * 19, 326, 15, 34, "kept" if n in (3, 4) else "out")
    d.line((499, 290), (499, 326), arrow=True)
    d.text(20, 342, "pages", "strong")
    d.text(20, 360, "row ranges inside a block, from its page index", "small")
    d.text(20, 388, "Nothing here is ever changed: a commit writes new objects and moves the pointer.", "small")
    return d.text_of()


def outcomes() -> str:
    """From a block's statistics to a verdict."""
    d = Drawing(
        860,
        300,
        "From statistics to a verdict",
        "For the predicate a > 10: a block from 2 to 7 can only be false, one from 12 to 30 without nulls only true, "
        "one from 5 to 20 both, one from 12 to 30 with nulls true or null, and one without bounds anything.",
    )
    d.text(20, 32, "a > 10", "strong")
    for x, head in ((20, "the block's statistics of a"), (330, "what a row may give"), (600, "verdict")):
        d.text(x, 62, head, "small")
    rows = (
        ("2 … 7", "nulls: none", "false", "left out"),
        ("12 … 30", "nulls: none", "true", "ALL: no row needs testing"),
        ("5 … 20", "nulls: none", "true, false", "SOME: may match"),
        ("12 … 30", "nulls: some", "true, null", "SOME: rows with null do not match"),
        ("not known", "", "true, false, null", "UNKNOWN: kept"),
    )
    for n, (bounds, nulls, possible, verdict) in enumerate(rows):
        y = 76 + n * 42
        d.box(20, y, 120, 32, "part", bounds)
        d.text(152, y + 21, nulls, "small")
        for m, outcome in enumerate(("true", "false", "null")):
            there = outcome in possible
            d.box(330 + m * 72, y, 64, 32, "kept" if there else "out", outcome if there else "")
        d.line((556, y + 16), (590, y + 16), arrow=True)
        d.text(600, y + 21, verdict, "strong" if n in (0, 1) else "")
    return d.text_of()


def clustering() -> str:
    """Why the layout determines how well a column prunes."""
    d = Drawing(
        860,
        270,
        "The same rows, unsorted and clustered",
        "Blocks as ranges of the cluster key. Unsorted, a value lies within most blocks; clustered, in one.",
    )
    for left, head, blocks in ((20, "as they arrived", _BEFORE), (450, "after a recluster", _AFTER)):
        d.text(left, 30, head, "strong")
        at = left + 390 * 0.45
        for n, (low, high) in enumerate(blocks):
            hit = low <= 45 < high
            d.box(left + low * 3.9, 50 + n * 28, (high - low) * 3.9 - 2, 20, "kept" if hit else "out")
        d.line((at, 42), (at, 222), kind="dash")
        depth = sum(low <= 45 < high for low, high in blocks)
        d.text(left, 246, f"blocks that may hold this value (depth): {depth} of {len(blocks)}")
    return d.text_of()


def commit() -> str:
    """The order of writes in a commit."""
    d = Drawing(
        860,
        250,
        "A commit: leaves first, pointer last",
        "Blocks are written first, then segments, then the snapshot, and last the pointer is changed in one "
        "conditional update. A crash before that leaves files that no snapshot names, and the old state in force.",
    )
    steps = ("blocks", "segments", "snapshot", "pointer")
    for n, step in enumerate(steps):
        x = 20 + n * 205
        d.box(x, 40, 150, 44, "kept" if step == "pointer" else "part", step)
        if n < len(steps) - 1:
            d.line((x + 150, 62), (x + 205, 62), arrow=True)
    d.text(20, 24, "written in this order; nothing is overwritten", "small")
    d.line((20, 104), (615, 104), kind="dash")
    d.text(
        20, 124, "killed here: the old snapshot stays in force; files that no snapshot names wait for vacuum", "small"
    )
    d.line((635, 104), (785, 104), kind="line")
    d.text(635, 124, "one row, if it is still the old one", "small")
    d.text(20, 164, "Another commit was first?", "strong")
    d.text(20, 186, "Appends, and removals of blocks that are still there: made again on top of it.")
    d.text(20, 208, "A block that this one removes is gone: refused, and named. Nothing of it is in the table.")
    d.text(20, 230, "The answer was lost? The same request with the same idempotency key has the same answer.")
    return d.text_of()


def reading() -> str:
    """How long old files are kept."""
    d = Drawing(
        860,
        230,
        "Snapshots in time, and what holds them",
        "A snapshot that was replaced stays for the table's retention. A tag or a lease holds it longer. Vacuum "
        "deletes only what no remaining snapshot names and what is old enough.",
    )
    names = ("s1", "s2", "s3", "s4", "s5")
    for n, name in enumerate(names):
        kind = "kept" if n == 4 else ("part" if n in (1, 3) else "out")
        d.box(60 + n * 160, 60, 80, 40, kind, name)
        if n < 4:
            d.line((140 + n * 160, 80), (220 + n * 160, 80), arrow=True)
    d.text(740, 50, "current", "small", middle=True)
    d.text(260, 50, "tag: nightly", "small", middle=True)
    d.text(580, 50, "lease: a long read", "small", middle=True)
    d.text(100, 124, "expired", "small", middle=True)
    d.text(420, 124, "expired", "small", middle=True)
    d.text(
        20, 164, "Vacuum keeps the current snapshot, those younger than the retention, and what a tag or a lease holds."
    )
    d.text(20, 186, "It deletes objects that none of these names, once they are older than the minimum age (3 days),")
    d.text(20, 208, "and never a registered file outside of the table's folder, unless it is told to.", "small")
    return d.text_of()
