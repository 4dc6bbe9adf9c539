"""The pure parts: lengths of time, retention, which snapshots go, what names mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamella.snapshot.errors import InvalidRequest
from lamella.snapshot.ids import Ids
from lamella.snapshot.vacuum import (
    Retention,
    decide,
    duration_ms,
    duration_text,
    foreign_table,
    object_name,
    read_retention,
    versions,
)

DEFAULT = Retention(max_age_ms=1_000, min_snapshots=2)
ID = str(Ids(lambda: 1_800_000_000_123, bytes).new())


@given(st.integers(0, 10**11))
def test_lengths_of_time_are_read_back(length_ms: int) -> None:
    """What is written of a length is that length."""
    assert duration_ms(duration_text(length_ms)) == length_ms


@pytest.mark.parametrize("text", ["", "7", "d", "-1d", "1.5d", "7 d", "7D", "1d12h", "٣d", "9999999999999d"])
def test_other_lengths_of_time_are_refused(text: str) -> None:
    """There is one way to write each."""
    with pytest.raises(InvalidRequest):
        duration_ms(text)


def test_properties_come_before_the_default() -> None:
    """Each on its own; other properties mean nothing here."""
    assert read_retention({"owner": "x", "lamella.other": "y"}, DEFAULT) == DEFAULT
    found = read_retention({"lamella.retention.max_age": "2h", "lamella.vacuum.enabled": "false"}, DEFAULT)
    assert found == Retention(max_age_ms=7_200_000, min_snapshots=2, enabled=False)
    assert read_retention({"lamella.retention.min_snapshots": "5"}, DEFAULT).min_snapshots == 5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lamella.retention.max_age", "soon"),
        ("lamella.retention.min_snapshots", "0"),
        ("lamella.retention.min_snapshots", "-1"),
        ("lamella.retention.min_snapshots", "1e3"),
        ("lamella.vacuum.enabled", "no"),
        ("lamella.retention.maxage", "7d"),
        ("lamella.vacuum.on", "true"),
    ],
)
def test_properties_that_cannot_be_read_are_refused(name: str, value: str) -> None:
    """Also names that only look like ones that are known."""
    with pytest.raises(InvalidRequest, match=name):
        read_retention({name: value}, DEFAULT)


@given(
    steps=st.lists(
        st.tuples(st.integers(1, 2_000), st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=12
    ),
    retention=st.builds(Retention, max_age_ms=st.integers(0, 5_000), min_snapshots=st.integers(1, 5)),
    wait_ms=st.integers(0, 10_000),
)
def test_what_expires_is_what_nothing_keeps(
    steps: list[tuple[int, bool, bool, bool]], retention: Retention, wait_ms: int
) -> None:
    """Against the rules written out for each snapshot alone, with gaps in the history."""
    at_ms, full = 0, []
    for seq, (step, tagged, leased, missing) in enumerate(steps, start=1):
        at_ms += step
        full.append((seq, at_ms, tagged, leased, missing and seq != len(steps)))
    now_ms = at_ms + wait_ms
    ended = {seq: full[seq][1] if seq < len(full) else None for seq, *_ in full}
    there = [one for one in reversed(full) if not one[4]]
    rows = [(seq, str(seq), made, ended[seq] if seq < len(full) and full[seq][4] else None) for seq, made, *_ in there]
    decided = decide(
        versions(rows),
        retention,
        tags={str(seq): ["t"] for seq, _, tagged, _, _ in there if tagged},
        leases={str(seq): ["l"] for seq, _, _, leased, _ in there if leased},
        now_ms=now_ms,
    )
    assert [decision.version.seq for decision in decided] == [one[0] for one in there]
    for index, (decision, (seq, _, tagged, leased, _)) in enumerate(zip(decided, there, strict=True)):
        until = ended[seq]
        old = until is not None and now_ms - until >= retention.max_age_ms
        assert decision.expires == (old and not tagged and not leased and index >= retention.min_snapshots)
        assert decision.reason


@pytest.mark.parametrize(
    ("below", "kind"),
    [
        (f"_ss/{ID}_v1.json", "snapshot"),
        (f"_ss/{ID}_v2.arrow", "snapshot"),
        (f"_sl/{ID}_v2.loc", "group"),
        (f"_sg/{ID}_v1.json", "segment"),
        (f"_sg/{ID}_v1.pages", "pages"),
        (f"_ts/{ID}_v1.hll", "sketch"),
        (f"_b/{ID}_v1.parquet", "block"),
        (f"_tmp/{ID}_v1.blocks", "temporary"),
        (f"_tmp/{ID}_v1.commit", "temporary"),
        (f"_tmp/{ID}_v1.rows/part-00000-x-c000.snappy.parquet", "temporary"),
        (f"_tmp/{ID}_v1.rows/_temporary/0/_temporary/attempt_1/part-00000.parquet", "temporary"),
        (f"_sg/.{ID}_v1.json.{'a' * 32}.tmp", "temporary"),
        (f"_sg/{ID}_v1.JSON", None),
        (f"_sg/{ID.upper()}_v1.json", None),
        (f"_sg/{ID}_v3.json", "segment"),
        (f"_sg/{ID}_v4.json", None),
        (f"_b/{ID}.parquet", None),
        (f"_i_b/{ID}_v1.bin", None),
        ("_sg/", None),
        ("", None),
    ],
)
def test_names_say_what_objects_are(below: str, kind: str | None) -> None:
    """And when they were made; other names, other folders and other tables are nobody's."""
    found = object_name("s3://b/w/t", f"s3://b/w/t/{below}")
    assert (None if found is None else found.kind) == kind
    if found is not None:
        assert (found.id, found.made_ms) == (ID, 1_800_000_000_123)
    for root in ("s3://b/w/t-2", "s3://b/w", "s3://b/w/t/_sg", "s3://c/w/t"):
        assert object_name(root, f"s3://b/w/t/{below}") is None


class Here:
    """A warehouse's way to name folders."""

    def table_location(self, table_id: str) -> str:
        """The folder of a table."""
        return f"s3://b/w/{table_id}"


def test_a_file_belongs_to_the_table_in_whose_folder_it_is() -> None:
    """Only folders that are named like a table count, and only below this warehouse."""
    other = str(Ids().new())
    assert foreign_table(Here(), ID, f"s3://b/w/{other}/_b/x.parquet") == other
    for location in (f"s3://b/w/{ID}/_b/x", "s3://b/w/data/x", f"s3://b/w/{other}", f"s3://b/w2/{other}/x", "s3://b/x"):
        assert foreign_table(Here(), ID, location) is None
