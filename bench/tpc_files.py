"""Tables and queries of TPC-H and TPC-DS, made by DuckDB's extensions ``tpch`` and ``tpcds``.

They are in an environment of their own, because they are of another version of DuckDB than other benchmarks use:

    uv venv build/tpc && uv pip install --python build/tpc/bin/python \\
        duckdb==1.5.5 duckdb-extension-tpch==1.5.5 duckdb-extension-tpcds==1.5.5
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Final

#: The interpreter of that environment.
PYTHON: Final = Path("build/tpc/bin/python")
#: The function of each benchmark that makes its tables.
_MAKERS: Final = {"tpch": "dbgen", "tpcds": "dsdgen"}
_GENERATE: Final = """
import json, sys
from importlib.util import find_spec
from pathlib import Path
import duckdb
folder, scale, benchmark, maker = Path(sys.argv[1]), float(sys.argv[2]), *sys.argv[3:]
packages = Path(find_spec(f"duckdb_extension_{benchmark}").origin).parent
extension = next(packages.rglob(f"{benchmark}.duckdb_extension"))
made = duckdb.connect(config={"allow_unsigned_extensions": "true"})
made.execute(f"LOAD '{extension}'")
made.execute(f"CALL {maker}(sf={scale})")
for (table,) in made.execute("SELECT table_name FROM information_schema.tables").fetchall():
    made.execute(f"COPY {table} TO '{folder}/{table}.parquet' (FORMAT parquet)")
(folder / "queries.json").write_text(json.dumps(dict(made.execute(f"FROM {benchmark}_queries()").fetchall())))
"""


def generate(folder: Path, benchmark: str, scale: float, python: Path) -> dict[int, str]:
    """Make a file for each table in ``folder``, unless it is there already. Returns the queries by number."""
    if not folder.exists():
        partial = folder.with_name(folder.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        command = [str(python), "-c", _GENERATE, str(partial), str(scale), benchmark, _MAKERS[benchmark]]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        partial.rename(folder)  # when whole, so that an interrupted run leaves no half of it to the next one
    texts = json.loads((folder / "queries.json").read_text())
    return {int(number): text.strip().rstrip(";") for number, text in texts.items()}
