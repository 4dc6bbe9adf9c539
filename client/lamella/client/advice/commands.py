"""``lamella advise``, ``what-if``, ``why-not`` and ``recorded``."""

from __future__ import annotations

import click

from lamella.client.cli.arguments import key_option, values_of
from lamella.client.cli.connection import Session, is_given, with_session
from lamella.client.cli.failure import CommandFailure
from lamella.client.cli.output import option_words, print_table, size_text, time_text
from lamella.snapshot.counts import counted
from lamella.snapshot.errors import LamellaError
from lamella.snapshot.wire import (
    AdviceAnswer,
    Candidate,
    CandidatesAnswer,
    Cost,
    IndexChange,
    IndexSize,
    RecordedCleared,
    Score,
    WhatIfAnswer,
    WhyNotAnswer,
)

_SNAPSHOT = click.option(
    "--snapshot", "snapshot_id", metavar="ID", help="Use this snapshot (an id, tag or number), not the current one."
)


@click.command()
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.option("--columns", metavar="A,B,...", help="Only these columns.")
@click.option("--kinds", metavar="A,B,...", help="Only these kinds of indexes.")
@click.option("--budget", "budget_bytes", type=click.FloatRange(min=1), help="Maximum size of an index in bytes.")
@click.option(
    "--share",
    "budget_share",
    type=click.FloatRange(min=0, min_open=True),
    help="Maximum size of an index as a fraction of the data.",
)
@click.option(
    "--top",
    type=click.IntRange(1, 100),
    help="Instead of scores: this many changes that would save the recorded filters most, each with its command.",
)
@click.option(
    "--recorded",
    type=click.IntRange(1, 1_000),
    default=100,
    show_default=True,
    help="With --top: how many recorded filters to try.",
)
@click.option(
    "--sample",
    type=click.IntRange(0, 1_000),
    default=0,
    show_default=True,
    help="With --top: read this many blocks for each index or cluster key and measure on them.",
)
@_SNAPSHOT
@with_session(timeout_s=600.0)
def advise(
    session: Session,
    table: str,
    columns: str | None,
    kinds: str | None,
    budget_bytes: float | None,
    budget_share: float | None,
    top: int | None,
    recorded: int,
    sample: int,
    snapshot_id: str | None,
) -> None:
    """Score columns and index kinds from 0 to 100 and estimate the size of each index, without reading data; or, with
    --top, say what to do for the table: a recluster, another cluster key, a compaction, an index, a purge, a vacuum.

    Changes nothing.
    """
    context = click.get_current_context()
    if top is None and any(is_given(context, name) for name in ("recorded", "sample")):
        raise click.UsageError("--recorded and --sample need --top")
    if top is not None:
        given = (columns, kinds, budget_bytes, budget_share, snapshot_id)
        if any(each is not None for each in given):
            raise click.UsageError("--top has no columns, kinds, budget, share or snapshot")
        found = session.lake.table(table).candidates(top, recorded=recorded, sample_blocks=sample)
        if session.as_data:
            session.emit(found, found.candidates)
        else:
            _show_candidates(found)
        return
    answer = session.lake.table(table).advise(
        _names(columns),
        _names(kinds),
        budget_bytes=budget_bytes,
        budget_share=budget_share,
        snapshot_id=snapshot_id,
    )
    if session.as_data:
        session.emit(answer, answer.scores)
    else:
        _show_scores(answer)


@click.command("what-if")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.option("--index", metavar="KIND", help="Predict an additional index of this kind, on the expression of --on.")
@click.option("--on", metavar="SQL", help="The column or expression of that index.")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="An option of that index; repeatable. Other options have their defaults.",
)
@key_option("Predict the table sorted by this key.")
@click.option("--rows-per-block", type=click.IntRange(min=1), help="Predict blocks of about this many rows.")
@click.option("--filter", "filters", metavar="SQL", multiple=True, help="A filter to try; may be given several times.")
@click.option(
    "--recorded",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Without --filter: how many recorded filters to try.",
)
@click.option(
    "--sample",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Read this many blocks and measure on them.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Random seed for the sample and the constants.",
)
@with_session(timeout_s=600.0)
def what_if(
    session: Session,
    table: str,
    index: str | None,
    on: str | None,
    options: tuple[str, ...],
    cluster_by: tuple[str, ...],
    rows_per_block: int | None,
    filters: tuple[str, ...],
    recorded: int,
    sample: int,
    seed: int,
) -> None:
    """Predict what filters would read after one change: an added index, another cluster key, or another block size."""
    if (index is None) != (on is None):
        raise click.UsageError("--index and --on must be given together")
    change = None
    if index is not None and on is not None:
        change = IndexChange(kind=index, expression=on, options=values_of(options, "--option"))
    answer = session.lake.table(table).what_if(
        index=change,
        cluster_key=cluster_by or None,
        rows_per_block=rows_per_block,
        filters=filters,
        recorded=recorded,
        sample_blocks=sample,
        seed=seed,
    )
    if session.as_data:
        session.emit(answer, answer.filters)
    else:
        _show_forecast(answer)


@click.command("why-not")
@click.argument("table", metavar="NAMESPACE.TABLE")
@click.argument("filter")
@click.option("--index", metavar="NAME", help="Only this index.")
@_SNAPSHOT
@with_session()
def why_not(session: Session, table: str, filter: str, index: str | None, snapshot_id: str | None) -> None:
    """Say for each index and each predicate of FILTER how much it prunes, or why it does not help."""
    try:
        answer = session.lake.table(table).why_not(filter, index, snapshot_id=snapshot_id)
    except LamellaError as error:
        raise CommandFailure(error, source=filter) from error
    if session.as_data:
        session.emit(answer, answer.answers)
    else:
        _show_reasons(answer)


@click.group()
def recorded() -> None:
    """Recorded filters, which advice evaluates."""


@recorded.command("list")
@click.argument("table", metavar="NAMESPACE.TABLE")
@with_session()
def list_(session: Session, table: str) -> None:
    """List the recorded filters, newest first."""
    answer = session.lake.table(table).recorded_filters()
    if session.as_data:
        session.emit(answer, answer.filters)
        return
    click.echo(f"recorded: {answer.mode}")
    if answer.filters:
        print_table(
            [("times", "right"), ("skipped", "right"), "last", "filter"],
            [
                (
                    f"{each.times:,}",
                    _percent(1 - each.kept / max(each.considered, 1)),
                    time_text(each.last_ms),
                    each.filter,
                )
                for each in answer.filters
            ],
        )


@recorded.command("clear")
@click.argument("table", metavar="NAMESPACE.TABLE")
@with_session()
def clear(session: Session, table: str) -> None:
    """Delete the recorded filters."""
    count = session.lake.table(table).clear_recorded_filters()
    if session.as_data:
        session.emit(RecordedCleared(filters=count))
    else:
        click.echo(f"{table}: {count:,} recorded filters deleted")


def _show_candidates(answer: CandidatesAnswer) -> None:
    click.echo(
        f"snapshot {answer.snapshot_id}, {counted(answer.blocks_total, 'block')}: "
        f"{counted(answer.tried, 'change')} tried on "
        f"{counted(answer.filters, 'filter')}"
    )
    if answer.reported_blocks:
        click.echo(
            f"readers reported no row in {answer.empty_blocks:,} of the "
            f"{counted(answer.reported_blocks, 'block')} that their "
            "filters read"
        )
    if not answer.candidates:
        click.echo("no change is known to help")
    for number, each in enumerate(answer.candidates, start=1):
        click.echo(f"{number}. {each.text}.")
        cost = _cost_words(each)
        if cost:
            click.echo(f"   cost: {cost}")
        click.echo(f"   based on {option_words('; '.join(each.rests_on))}")
        click.echo(f"   {each.command}")
    if answer.unpredicted:
        click.echo("cannot tell:")
    for each in answer.unpredicted:
        click.echo(f"- {each.text}: {option_words(each.missing)}")
        click.echo(f"  {each.command}")
    for text, reason in answer.left_out.items():
        click.echo(f"left out: {text}: {option_words(reason)}")


def _cost_words(candidate: Candidate) -> str:
    cost = candidate.cost
    parts = []
    if cost.rewritten_bytes:
        parts.append(f"{counted(cost.blocks, 'block')} of {size_text(cost.rewritten_bytes)} to write anew")
    if cost.read_bytes:
        parts.append(f"blocks of {size_text(cost.read_bytes)} are read")
    if cost.index_bytes is None:
        parts.append("the size of the index is not known")
    elif cost.index_bytes:
        parts.append(f"the index takes {size_text(round(cost.index_bytes))}")
    return ", ".join(parts)


def scores_sentence(answer: AdviceAnswer) -> str:
    """Return what the scores stand on, how many are known, and how many are not."""
    known = sum(each.score is not None for each in answer.scores)
    open_ended = sum(each.score is None and each.max_score - each.min_score >= 100 for each in answer.scores)
    between = len(answer.scores) - known - open_ended
    looked = f"statistics of {answer.blocks_seen:,} of {counted(answer.blocks_total, 'block')}"
    if not answer.scores:
        return f"nothing is known: {looked} give no column a score"
    parts = [
        f"{known:,} known" if known else "",
        f"{between:,} only between limits" if between else "",
        f"{open_ended:,} unknown (?)" if open_ended else "",
    ]
    left = f"; columns without one: {len(answer.left_out):,}" if answer.left_out else ""
    return f"of {len(answer.scores):,} scores, by {looked}: {', '.join(filter(None, parts))}{left}"


def forecast_sentence(answer: WhatIfAnswer) -> str:
    """Return what is known of a change, and by what: the numbers below it are of no more filters than it says."""
    count, known = len(answer.filters), len(answer.filters) - answer.unknown
    if not count:
        return "nothing is known: there is no filter to try"
    if answer.then is None or not known:
        return f"nothing is known: what {_filters(count)} would read after the change cannot be predicted"
    how = f"measured in {counted(answer.blocks_read, 'block')}" if answer.measured else "estimated from statistics"
    text = (
        f"{how}: {_filters(known)} would read {answer.then.blocks:,.1f} of "
        f"{counted(answer.blocks_total, 'block')} on average, "
        f"now {answer.now.blocks:,.1f}"
    )
    return text + (f"; nothing is known of {answer.unknown:,} of {_filters(count)}" if answer.unknown else "")


def _filters(count: int) -> str:
    return counted(count, "filter")


def _show_scores(answer: AdviceAnswer) -> None:
    click.echo(scores_sentence(answer))
    click.echo(f"snapshot {answer.snapshot_id}")
    print_table(
        [
            "column",
            "by",
            "layer",
            ("score", "right"),
            ("there", "right"),
            ("absent", "right"),
            ("size", "right"),
            "note",
        ],
        [
            (
                each.column,
                each.kind or "bounds",
                each.layer,
                _score(each),
                _percent(each.skip_present),
                _percent(each.skip_absent),
                _size(each.size),
                option_words(each.reason),
            )
            for each in answer.scores
        ],
        title="skipped by look-ups of single values",
    )
    for column, text in answer.rests_on.items():
        click.echo(f"{column}: {option_words(text)}")
    for column, reason in answer.left_out.items():
        click.echo(f"{column} left out: {option_words(reason)}")


def _show_forecast(answer: WhatIfAnswer) -> None:
    then = ("?", "?", "?") if answer.then is None else _cost(answer.then)
    rows = [("now", *_cost(answer.now)), ("then", *then)]
    click.echo(forecast_sentence(answer))
    click.echo(f"snapshot {answer.snapshot_id}, {counted(answer.blocks_total, 'block')}")
    print_table(["on average", ("blocks", "right"), ("bytes", "right"), ("skipped", "right")], rows)
    if answer.size is not None:
        click.echo(f"the index takes about {_size(answer.size)}")
    print_table(
        [("times", "right"), ("now", "right"), ("then", "right"), ("if absent", "right"), "filter", "note"],
        [
            (
                f"{each.times:,}",
                _percent(each.now.skip),
                _percent(None if each.then is None else each.then.skip),
                "" if each.if_absent is None else _percent(each.if_absent.skip),
                each.filter,
                option_words(each.reason),
            )
            for each in answer.filters
        ],
        title="skipped, filter by filter",
    )
    click.echo("based on " + option_words("; ".join(answer.rests_on)))
    for text, reason in answer.left_out.items():
        click.echo(f"left out: {text}: {option_words(reason)}")


def _show_reasons(answer: WhyNotAnswer) -> None:
    click.echo(
        f"snapshot {answer.snapshot_id}: of {counted(answer.blocks_total, 'block')}, min/max bounds leave "
        f"{answer.after_bounds:,}, indexes {answer.after_indexes:,}"
    )
    if not answer.answers:
        click.echo("the table has no index")
        return
    print_table(
        ["index", "predicate", "outcome", "why"],
        [
            (f"{each.index} ({each.kind})", each.predicate or "the whole filter", each.code, each.reason)
            for each in answer.answers
        ],
    )


def _cost(cost: Cost) -> tuple[str, str, str]:
    return f"{cost.blocks:,.1f}", size_text(round(cost.bytes)), _percent(cost.skip)


def _score(score: Score) -> str:
    if score.score is not None:
        return f"{score.score:.0f}"
    return "?" if score.max_score - score.min_score >= 100 else f"{score.min_score:.0f} to {score.max_score:.0f}"


def _size(size: IndexSize | None) -> str:
    if size is None:
        return ""
    if size.size_bytes is None:
        return "?"
    limit = "" if size.is_counted or size.reason else "at most "
    return f"{limit}{size_text(round(size.size_bytes))}" + (", too large" if size.fits is False else "")


def _percent(part: float | None) -> str:
    return "?" if part is None else f"{100 * part:.1f} %"


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",")]
