"""Assets of Dagster over tables of Lamella: an IO manager, a daily partition, and a check.

``dagster dev -f dagster_sales.py`` shows them. The service is that of ``LAMELLA_URL`` (and the key that of
``LAMELLA_TOKEN_FILE``).
"""

import os

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc

from lamella.client import Lamella


class LamellaTables(dg.ConfigurableIOManager):
    """An asset ``["shop", "sales"]`` is the table ``shop.sales``. A partition is the rows of one day.

    ``partition_column`` in an asset's metadata names the column of its days.
    """

    url: str

    def handle_output(self, context: dg.OutputContext, obj: pa.Table) -> None:
        """Replace the rows of the partition, or all rows, in one commit; a run that is repeated changes nothing."""
        name = ".".join(context.asset_key.path)
        with Lamella(self.url) as lake:
            table = lake.table(name)
            done = table.overwrite(obj, self._condition(context), create=True)
        context.add_output_metadata({"table": name, "snapshot": done.snapshot_id, "dagster/row_count": obj.num_rows})

    def load_input(self, context: dg.InputContext) -> pa.Table:
        """Return the rows of the partition, or all rows."""
        with Lamella(self.url) as lake:
            return lake.table(".".join(context.asset_key.path)).scan(self._condition(context)).to_arrow()

    def _condition(self, context: dg.OutputContext | dg.InputContext) -> str | None:
        if not context.has_asset_partitions:
            return None
        metadata = context.upstream_output if isinstance(context, dg.InputContext) else context
        column = (metadata.definition_metadata if metadata else {}).get("partition_column")
        if column is None:
            return None
        days = context.asset_partitions_time_window
        return f"{column} >= TIMESTAMP '{days.start.isoformat()}' AND {column} < TIMESTAMP '{days.end.isoformat()}'"


daily = dg.DailyPartitionsDefinition(start_date=os.environ.get("FIRST_DAY", "2026-01-01"))


@dg.asset(key=["shop", "orders"], partitions_def=daily, metadata={"partition_column": "ordered_at"})
def orders(context: dg.AssetExecutionContext) -> pa.Table:
    """A day of orders, made up; a source would be asked here."""
    day = context.partition_time_window.start
    numbers = pa.array(range(24))
    times = pc.add(
        pa.scalar(day, pa.timestamp("us", "UTC")), pc.multiply(numbers, 3_600_000_000).cast(pa.duration("us"))
    )
    countries = pa.array(["DE", "FR", "NO"] * 8)
    return pa.table(
        {"order_id": numbers, "country": countries, "amount": pc.multiply(numbers, day.day), "ordered_at": times}
    )


@dg.asset(key=["shop", "sales"], partitions_def=daily, metadata={"partition_column": "day"})
def sales(context: dg.AssetExecutionContext, orders: pa.Table) -> pa.Table:
    """Sums by country of the same day."""
    sums = orders.group_by("country").aggregate([("amount", "sum")])
    day = pa.scalar(context.partition_time_window.start, pa.timestamp("us", "UTC"))
    return pa.table({"day": pa.repeat(day, len(sums)), "country": sums["country"], "amount": sums["amount_sum"]})


@dg.asset(key=["shop", "total"])
def total(sales: pa.Table) -> pa.Table:
    """Sums by country of all days."""
    return sales.group_by("country").aggregate([("amount", "sum")]).rename_columns(["country", "amount"])


@dg.asset_check(asset=total)
def amounts_are_positive(total: pa.Table) -> dg.AssetCheckResult:
    """No country owes us anything."""
    return dg.AssetCheckResult(passed=bool(pc.all(pc.greater(total["amount"], 0)).as_py()))


defs = dg.Definitions(
    assets=[orders, sales, total],
    asset_checks=[amounts_are_positive],
    resources={"io_manager": LamellaTables(url=dg.EnvVar("LAMELLA_URL"))},
)
