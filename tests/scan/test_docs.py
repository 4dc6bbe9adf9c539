"""The example of the guide runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fixtures_server import ServerProcess
from lamella.client import Lamella

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "scan.md"


def test_the_example_runs(server: ServerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Against a service with such a table, the example prints what it says."""
    table = pa.table(
        {
            "id": [41, 42, 43],
            "price": [10.0, 100.0, 200.0],
            "note": ["a gift", "a gift", None],
            "buyer": [{"country": "DE"}, {"country": "FR"}, None],
        }
    )
    pq.write_table(table, tmp_path / "orders.parquet", write_page_index=True)
    with Lamella(server.url) as lake:
        lake.create_namespace("shop")
        lake.create_table("shop.orders", schema_from=f"file://{tmp_path}/orders.parquet")
        lake.table("shop.orders").register([str(tmp_path / "orders.parquet")])
    found = re.search(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    names: dict[str, pa.Table] = {}
    exec(found[1].replace("http://127.0.0.1:8181", server.url), names)  # noqa: S102  # our own guide
    assert names["table"].to_pylist() == [{"id": 42, "price": 100.0, "buyer.country": "FR"}]
    assert names["dearest"].column("id").to_pylist() == [43, 42, 41]
    assert names["yesterday"].column("id").to_pylist() == [42]
    assert capsys.readouterr().out.splitlines()[:2] == ["1", "1"]
