"""Where to store page statistics: the cost of reading them from files, of memory, and of using them.

``python bench/pages.py`` prints one run's figures; ``docs/decisions/0007-page-sidecars.md`` has those that decided.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lamella.snapshot.columnar import build_blocks
from lamella.snapshot.pages.build import KnownBlock, read_block_footer, read_cells
from lamella.snapshot.pages.cell import encode
from lamella.snapshot.parquet import block_of, ingest, read_footer, schema_of
from lamella.snapshot.parquet.page_index import read_page_index
from lamella.snapshot.storage import FsspecStore
from lamella.snapshot.warehouse import Warehouse
from lamella.snapshot.wire import PruneRequest

COLUMNS = 20
PAGE_ROWS = 100


def median_ms(call: Callable[[], object], *, times: int = 9) -> float:
    """Return the median milliseconds of one call."""
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        call()
        taken.append((time.perf_counter() - started) * 1e3)
    return statistics.median(taken)


def write(folder: Path, files: int, pages: int) -> list[Path]:
    """Write files of 20 columns with this many pages each; ``c0`` is sorted through all of them."""
    rng = np.random.default_rng(7)
    rows = pages * PAGE_ROWS
    paths = []
    for at in range(files):
        columns: dict[str, object] = {"c0": np.arange(at * rows, (at + 1) * rows)}
        for column in range(1, COLUMNS):
            if column % 4 == 1:
                columns[f"c{column}"] = [f"key-{value:09d}" for value in rng.integers(0, 10**9, rows)]
            elif column % 4 == 2:
                columns[f"c{column}"] = rng.random(rows)
            else:
                columns[f"c{column}"] = rng.integers(0, 10**12, rows)
        path = folder / f"f{at}.parquet"
        pq.write_table(
            pa.table(columns),
            path,
            write_page_index=True,
            max_rows_per_page=PAGE_ROWS,
            use_dictionary=False,
            compression="none",
        )
        paths.append(path)
    return paths


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=200)
    parser.add_argument("--pages", type=int, default=100, help="pages of a column in a file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lamella-pages-") as name:
        folder = Path(name)
        paths = write(folder, options.blocks, options.pages)
        one_file(paths[0], options.pages)
        one_segment(folder, paths, options.pages * PAGE_ROWS)


def one_file(path: Path, pages: int) -> None:
    """The cost of reading a file's page indexes at registration."""
    store = FsspecStore()
    location = f"file://{path}"
    footer = read_footer(store, location)
    schema = schema_of(footer)
    block = block_of(footer, schema)
    known, leaves = KnownBlock.of(block), schema.leaves()
    size_bytes = (block.page_index_location or (0, 0))[1]
    print(f"one file: {COLUMNS} columns x {pages} pages, page indexes of {size_bytes:,} bytes")
    registered = median_ms(lambda: block_of(read_footer(store, location), schema))
    everything = median_ms(lambda: read_cells(store, known, footer, leaves))
    print(f"  register without pages            {registered:8.2f} ms")
    print(f"  and with all page statistics      {registered + everything:8.2f} ms")
    print(f"  offset indexes only, all columns  {median_ms(lambda: read_page_index(store, footer)):8.2f} ms")
    two = leaves[:2]
    on_demand = median_ms(lambda: read_cells(store, known, read_block_footer(store, known), two))
    print(f"  footer and 2 columns, on demand   {on_demand:8.2f} ms")
    cell_bytes = sum(len(encode(cell)) for cell in read_cells(store, known, footer, leaves).values())
    alone = len(build_blocks(schema, [block] * 100)) / 100
    print(f"  kept: {cell_bytes:,} bytes a block ({cell_bytes / pages / COLUMNS:.1f} a page of a column)")
    print(f"  the block in its segment's sidecar, without pages: {alone:,.0f} bytes")


def one_segment(folder: Path, paths: list[Path], rows: int) -> None:
    """The cost of a request, by where the statistics come from."""
    store = FsspecStore()
    locations = [f"file://{path}" for path in paths]
    schema = schema_of(read_footer(store, locations[0]))
    started = time.perf_counter()
    blocks, _ = ingest(store, locations, schema)
    print(f"one segment of {len(blocks)} blocks: registered in {time.perf_counter() - started:.2f} s", end="")
    root = f"file://{folder}/lake"

    def fresh() -> Warehouse:
        return Warehouse(store, root, page_files=10_000)

    warehouse = fresh()
    pointer = warehouse.create("t", schema, now_ms=1)
    pointer = warehouse.commit(pointer, added=warehouse.prepare("t", schema, blocks), now_ms=2).pointer

    def request(text: str, level: str) -> PruneRequest:
        body = {"filter": text, "level": level, "columns": ("c0", "c1", "c2")}
        return msgspec.convert(body, PruneRequest)

    def cold(text: str) -> float:
        """Return the milliseconds of a first page request after blocks have been pruned."""
        made = fresh()
        made.prune(pointer, request(text, "block"))
        started = time.perf_counter()
        made.prune(pointer, request(text, "page"))
        return (time.perf_counter() - started) * 1e3

    def warm(text: str, level: str) -> float:
        made = fresh()
        made.prune(pointer, request(text, level))
        return median_ms(lambda: made.prune(pointer, request(text, level)))

    texts = {
        "1 block": f"c0 = {rows // 2}",
        "20 blocks": f"c0 < {20 * rows} AND c2 < 0.001",
        "all blocks": "c2 < 0.001 AND c1 >= 'key-5'",
    }
    files = {name: statistics.median(cold(text) for _ in range(3)) for name, text in texts.items()}
    started = time.perf_counter()
    built = warehouse.build_pages(pointer)
    print(f", page sidecar built in {time.perf_counter() - started:.2f} s, {built.size_bytes:,} bytes")
    print(f"  {'ms':<12}{'level block':>14}{'out of files':>14}{'sidecar, cold':>18}{'from memory':>14}")
    for name, text in texts.items():
        sidecar = statistics.median(cold(text) for _ in range(5))
        print(
            f"  {name:<12}{warm(text, 'block'):>14.2f}{files[name]:>14.2f}{sidecar:>18.2f}{warm(text, 'page'):>14.2f}"
        )


if __name__ == "__main__":
    main()
