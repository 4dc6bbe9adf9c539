"""What a client has already is not sent again: entity tags of tables, schemas, snapshots and segments."""

from __future__ import annotations

import httpx2
import pytest

from support.service_api import TableApi, World


@pytest.fixture
def table(local: World) -> TableApi:
    """A table of a few files."""
    table = local.table()
    table.register(*local.numbers(local.folder(), 3))
    return table


def ask(table: TableApi, path: str, **headers: str) -> httpx2.Response:
    """A GET of something below the table."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return table.api.http.get(table.path + path, headers=named)


def paths(table: TableApi) -> list[str]:
    """Everything of the table that has a tag."""
    snapshot = table.snapshot()
    segment = snapshot["segments"][0]["segment_id"]
    return [
        "",
        "/schema",
        "/snapshots",
        f"/snapshots/{snapshot['snapshot_id']}",
        f"/segments/{segment}",
        f"/segments/{segment}/blocks",
    ]


def test_what_did_not_change_is_not_sent_again(table: TableApi) -> None:
    """304 without a body and with the same tag, also among other tags and as a strong one; else all of it."""
    for path in paths(table):
        whole = ask(table, path)
        tag = whole.headers["etag"]
        assert whole.status_code == 200
        for known in (tag, f'"other", {tag}', tag.removeprefix("W/"), "*"):
            again = ask(table, path, If_None_Match=known)
            assert (again.status_code, again.content) == (304, b""), path
            assert again.headers["etag"] == tag
        for other in ('"other"', tag.strip('W/"'), ""):
            assert ask(table, path, If_None_Match=other).content == whole.content


def test_what_changed_has_another_tag(local: World, table: TableApi) -> None:
    """After a commit the table, its schema and its listing are sent anew; the old snapshot is what it was."""
    tags = {path: ask(table, path).headers["etag"] for path in paths(table)}
    table.register(*local.numbers(local.folder(), 1))
    for path, tag in tags.items():
        again = ask(table, path, If_None_Match=tag)
        is_old = "/snapshots/" in path
        assert again.status_code == (304 if is_old else 200), path
        if not is_old:
            assert again.headers["etag"] != tag


def test_a_tag_is_noticed_in_the_listing(table: TableApi) -> None:
    """A name for a snapshot changes the listing without a commit."""
    before = ask(table, "/snapshots").headers["etag"]
    assert ask(table, "/snapshots", If_None_Match=before).status_code == 304
    table.api.call("POST", f"{table.path}/tags", {"name": "release"}, expect=201)
    after = ask(table, "/snapshots", If_None_Match=before)
    assert (after.status_code, after.json()["snapshots"][0]["tags"]) == (200, ["release"])


def test_a_table_of_the_same_name_is_another_one(table: TableApi) -> None:
    """Dropped and made again, it has another tag; while it is gone it is not found, whatever the client has."""
    tag = ask(table, "").headers["etag"]
    table.api.call("DELETE", table.path, expect=204)
    assert ask(table, "", If_None_Match=tag).status_code == 404
    schema = [{"name": "a", "type": "int64"}, {"name": "s", "type": "string"}]
    table.api.call(
        "POST", f"/v1/namespaces/{table.namespace}/tables", {"name": table.name, "schema": schema}, expect=201
    )
    assert ask(table, "", If_None_Match=tag).status_code == 200


def test_what_is_not_there_has_no_tag(table: TableApi) -> None:
    """A tag of something else, or any tag at all, does not turn 404 into 304."""
    tag = ask(table, "").headers["etag"]
    missing = "00000000-0000-7000-8000-000000000000"
    for path in (f"/snapshots/{missing}", f"/segments/{missing}", f"/segments/{missing}/blocks"):
        for known in (tag, "*"):
            assert ask(table, path, If_None_Match=known).status_code == 404


def test_addresses_can_be_cached_for_ever_and_pointers_not(table: TableApi) -> None:
    """A segment's blocks never change; everything else is asked for again."""
    cache_control = {path.rpartition("/")[2]: ask(table, path).headers["cache-control"] for path in paths(table)}
    assert cache_control.pop("blocks") == "max-age=31536000, immutable"
    assert set(cache_control.values()) == {"no-cache"}


def test_large_manifests_are_compressed_for_those_who_read_that(local: World) -> None:
    """By `Accept-Encoding`; the content is the same, and so is its tag."""
    table = local.table()
    table.register(*local.numbers(local.folder(), 60))
    path = f"/segments/{table.snapshot()['segments'][0]['segment_id']}"
    plain = ask(table, path, Accept_Encoding="identity")
    packed = ask(table, path, Accept_Encoding="gzip")
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) < len(plain.content) // 4
    assert packed.content == plain.content
    assert packed.headers["etag"] == plain.headers["etag"]
    assert "Accept-Encoding" in plain.headers["vary"]
    small = ask(table, "", Accept_Encoding="gzip")
    assert "content-encoding" not in small.headers
