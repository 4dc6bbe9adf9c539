"""Properties of tables, set and removed by commits, for each kind of catalog and store."""

from __future__ import annotations

import threading

import pytest

from lamella.client.http import Lamella
from lamella.snapshot.errors import InvalidRequest
from support.service_api import World


def test_a_commit_removes_properties(world: World) -> None:
    """Alone, or beside others that it sets; one that the table does not have is no error."""
    table = world.table(properties={"a": "1", "b": "2"})
    with Lamella(world.url) as lake:
        handle = lake.table(f"{table.namespace}.{table.name}")
        handle.commit(operation="alter", properties={"c": "3"}, remove_properties=["a", "nothing"])
        assert handle.info().properties == {"b": "2", "c": "3"}
        handle.commit(operation="alter", remove_properties=["b", "c"])
        assert handle.info().properties == {}
        assert table.history()[0]["operation"] == "alter"
        assert handle.snapshot(table.history()[-1]["snapshot_id"]).properties == {"a": "1", "b": "2"}


def test_properties_that_are_not_the_callers_stay(local: World) -> None:
    """Those of a source are set by the service; a property is not both set and removed."""
    table = local.table(properties={"a": "1"})
    with Lamella(local.url) as lake:
        handle = lake.table(f"{table.namespace}.{table.name}")
        with pytest.raises(InvalidRequest, match="set by the service"):
            handle.commit(remove_properties=["lamella.source.kind"])
        with pytest.raises(InvalidRequest, match="both set and removed"):
            handle.commit(properties={"a": "2"}, remove_properties=["a"])
        assert handle.info().properties == {"a": "1"}


def test_commits_that_set_and_remove_at_once_act_one_after_another(local: World) -> None:
    """Whichever order they come in, each one's own property is as it said."""
    names = [f"p{number}" for number in range(10)]
    table = local.table(properties=dict.fromkeys(names, "old"))
    with Lamella(local.url) as lake:
        handle = lake.table(f"{table.namespace}.{table.name}")
        threads = [threading.Thread(target=handle.commit, kwargs={"remove_properties": [name]}) for name in names]
        threads += [threading.Thread(target=handle.commit, kwargs={"properties": {f"new{n}": "1"}}) for n in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert handle.info().properties == {f"new{number}": "1" for number in range(10)}
