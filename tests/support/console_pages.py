"""Every page of the console with something on it, and with names that are as long as they may be."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from lamella.client import Lamella
from lamella.snapshot.wire import (
    CompactRule,
    FinishJob,
    Heartbeat,
    JobError,
    JobLine,
    Policy,
    PutSchedule,
    ReclusterRule,
    VacuumRule,
)
from lamella.snapshot.wire.access import Grant
from support.dashboard_tables import EVENTS, LINEITEM, fill, fill_tickets
from support.job_records import IDS

LONG: Final = ("long_" + "namespace" * 10, "a_table_whose_name_" + "has_no_end_" * 9)
LONG_TABLE: Final = ".".join(LONG)
LONG_COLUMN: Final = "column" * 20
FILTER: Final = "l_shipdate < DATE '1993-06-01' AND l_partkey = 1552"
_LONG_TEXT: Final = "a_location_without_any_space/" * 20
_LOG: Final = (JobLine(number=1, at_ms=1, text=f"reads {_LONG_TEXT}"), JobLine(number=2, at_ms=2, text="is done"))
_POLICY: Final = Policy(
    compact=CompactRule(small_blocks=8), recluster=ReclusterRule(average_depth=4.0), vacuum=VacuumRule(every_s=86_400)
)
_T: Final = "/ui/tables/shop/lineitem"
_E: Final = "/ui/tables/shop/events"
_L: Final = f"/ui/tables/{LONG[0]}/{LONG[1]}"
_F: Final = quote(FILTER)

#: The name of each page that a browser gets, and addresses of it; ``{job}`` and so on: see :func:`fill_console`.
PAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "ui_overview": ("/ui", "/ui?sort=-rows"),
    "ui_health": ("/ui/health",),
    "ui_search": ("/ui/search?q=a", "/ui/search"),
    "ui_new": ("/ui/new?namespace=shop",),
    "ui_namespace": ("/ui/namespaces/shop", f"/ui/namespaces/{LONG[0]}"),
    "ui_ask_drop_namespace": (f"/ui/namespaces/{LONG[0]}/drop",),
    "ui_table": (_T, _E, _L),
    "ui_map": (
        f"{_T}/map",
        f"{_T}/map?filter={_F}",
        f"{_T}/map?axis=order",
        f"{_T}/map?zoom=1",
        f"{_T}/map?zoom=1.2",
        "/ui/tables/shop/tickets/map?key=id&colour=width",
        f"{_L}/map?key={LONG_COLUMN}",
        f"{_L}/map?zoom=0.0",
    ),
    "ui_columns": (f"{_T}/columns", f"{_L}/columns"),
    "ui_rows": (f"{_T}/rows", f"{_T}/rows?filter={_F}", f"{_L}/rows"),
    "ui_indexes": (f"{_T}/indexes", f"{_L}/indexes"),
    "ui_new_index": (f"{_T}/indexes/new", f"{_T}/indexes/new?kind=bloom&columns=l_partkey"),
    "ui_index_to_drop": (f"{_T}/indexes/by_part/drop",),
    "ui_index_to_restore": (f"{_L}/indexes/{{index}}/restore",),
    "ui_history": (f"{_T}/history", f"{_L}/history"),
    "ui_difference": (f"{_T}/history/difference?since=first-load", f"{_L}/history/difference?since={{tag}}"),
    "ui_ask_rollback": (f"{_T}/history/rollback?to=first-load",),
    "ui_ask_drop_tag": (f"{_L}/history/untag?name={{tag}}",),
    "ui_lab": (f"{_T}/lab", f"{_T}/lab?filter={_F}", f"{_T}/lab?filter={_F}&explain=1", f"{_L}/lab"),
    "ui_lab_block": (f"{_T}/lab/block?filter={_F}&block=0.0",),
    "ui_lab_compare": (f"{_T}/lab/compare?filter={_F}&with=snapshot&other_at=first-load",),
    "ui_upkeep": (f"{_E}/upkeep", f"{_L}/upkeep"),
    "ui_ask_drop_policy": (f"{_E}/upkeep/policy/remove",),
    "ui_schedule": (f"{_E}/upkeep/schedule?kind=vacuum", f"{_E}/upkeep/schedule?name={{schedule}}"),
    "ui_ask_drop_schedule": (f"{_E}/upkeep/schedule/remove?name={{schedule}}",),
    "ui_auto": (f"{_E}/upkeep/auto", f"{_T}/upkeep/auto?explain=yes", f"{_L}/upkeep/auto?explain=yes"),
    "ui_advice": (f"{_T}/advice", f"{_L}/advice"),
    "ui_ask_drop_table": (f"{_L}/drop",),
    "ui_ask_rename_table": (f"{_L}/rename",),
    "ui_ask_register": (f"{_L}/register",),
    "ui_table_access": (f"{_T}/access", f"{_L}/access"),
    "ui_jobs": ("/ui/jobs", "/ui/jobs?state=failed"),
    "ui_job": ("/ui/jobs/{job}", "/ui/jobs/{queued}"),
    "ui_new_job": (
        "/ui/jobs/new",
        f"/ui/jobs/new?kind=recluster&table={LINEITEM}&preview=1",
        f"/ui/jobs/new?kind=vacuum&table={LONG_TABLE}",
    ),
    "ui_ask_cancel_job": ("/ui/jobs/{queued}/cancel",),
    "ui_access": ("/ui/access",),
    "ui_ask_rotate_key": ("/ui/access/keys/{key}/rotate",),
    "ui_ask_revoke_key": ("/ui/access/keys/{key}/revoke",),
    "ui_ask_take_grant": (f"/ui/access/take?principal=key:{{key}}&role=read&place={LONG_TABLE}",),
    "ui_service": ("/ui/service",),
    "ui_settings": ("/ui/service/settings",),
    "ui_audit": ("/ui/service/audit",),
    "ui_style": ("/ui/style",),
    "ui_nothing": ("/ui/there/is/no/such/page",),
}
#: Pages for who is not logged in.
PUBLIC: Final[Mapping[str, tuple[str, ...]]] = {"ui_login": ("/ui/login",)}
#: Addresses that answer with a file, or lead elsewhere.
NO_PAGES: Final = frozenset(
    {"ui_overview_slash", "ui_static", "ui_metrics", "ui_job_json", "ui_login_start", "ui_login_back"}
)


def fill_console(lake: Lamella, folder: Path) -> dict[str, str]:
    """Make tables, jobs, keys and so on; what stands in braces in :data:`PAGES`."""
    fill(lake, folder, scale=0.002)
    fill_tickets(lake, folder, rows=10)
    names = {"tag": "quarter_" * 7 + "end", "index": "index_" * 9, "schedule": "nightly_" * 7, "key": "key_" * 15}
    _long_table(lake, folder, names)
    events = lake.table(EVENTS)
    events.set_policy(_POLICY)
    events.set_schedule(names["schedule"], PutSchedule(kind="vacuum", every_s=86_400))
    lake.keys.create(names["key"], [Grant(role="read", namespace=LONG[0], table=LONG[1])])
    lake.grants.give("user:" + "someone-with-a-long-name@" * 5, "read", "shop", "lineitem")
    names["job"] = _failed_job(lake)
    names["queued"] = lake.jobs.submit("compact", LONG_TABLE).job_id
    lake.table(LINEITEM).prune(FILTER)
    return names


def _long_table(lake: Lamella, folder: Path, names: Mapping[str, str]) -> None:
    files = [folder / f"{'long-file-name-' * 8}{number}.parquet" for number in range(3)]
    for number, file in enumerate(files):
        pq.write_table(pa.table({LONG_COLUMN: ["x" * 300, f"{number}" * 40], "n": [10**15, -(10**15)]}), file)
    lake.create_namespace(LONG[0])
    lake.create_table(LONG_TABLE, schema_from=f"file://{files[0]}", cluster_key=[LONG_COLUMN])
    table = lake.table(LONG_TABLE)
    table.register([f"file://{file}" for file in files[:2]])
    table.tag(names["tag"])
    table.register([f"file://{files[2]}"])
    table.create_index(names["index"], "bloom", LONG_COLUMN)
    table.drop_index(names["index"])
    table.prune(f"{LONG_COLUMN} = '{'y' * 200}'")
    lake.create_table(f"{LONG_TABLE[:-1]}x", schema_from=f"file://{files[0]}")
    lake.drop_table(f"{LONG_TABLE[:-1]}x")


def _failed_job(lake: Lamella) -> str:
    job = lake.jobs.submit("verify", LONG_TABLE)
    token = str(IDS.new())
    lake.jobs.claim("worker-" * 12, token, lease_s=600, kinds=["verify"])
    lake.jobs.heartbeat(job.job_id, Heartbeat(lease_token=token, lease_s=600, log=_LOG))
    error = JobError(code="odd", detail=f"block 7 of {_LONG_TEXT} is odd")
    lake.jobs.finish(job.job_id, FinishJob(lease_token=token, outcome="failed", error=error, retry=False))
    return job.job_id
