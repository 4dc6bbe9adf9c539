"""``lamella auto``: what automatic upkeep would do and did, and the command that does it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from lamella.client.cli.connection import Session, with_session
from lamella.client.cli.output import option_words, print_table, size_text, time_text
from lamella.client.cli.rewrite import EngineOptions, engine_options, job_context
from lamella.snapshot.counts import counted
from lamella.snapshot.wire import AutoAction, AutoBudget, AutoLedger, AutoPlan, AutoRule, CandidateGain

if TYPE_CHECKING:
    from lamella.client.jobs.auto import AutoResult

#: Actions of the ledger that are shown to people; ``--json`` has all.
MAX_LISTED = 20


@click.group()
def auto() -> None:
    """Upkeep by the rule `auto` of a table's policy: what saves most is done within budgets, and measured."""


def _rule_options(function: Any) -> Any:
    for option in reversed(
        [
            click.option("--rewritten-bytes-per-day", type=click.IntRange(min=0), help="Budget of rewritten bytes."),
            click.option("--index-bytes", type=click.IntRange(min=0), help="Budget for the size of indexes."),
            click.option("--hours", metavar="22:00-06:00", help="When actions may begin."),
            click.option("--time-zone", help="Time zone of --hours."),
            click.option(
                "--payback-days",
                type=click.FloatRange(min=0, min_open=True),
                help="Days in which an action must have saved what it costs.",
            ),
            click.option("--min-gain", type=click.FloatRange(0, 1, max_open=True), help="Minimum part that is saved."),
        ]
    ):
        function = option(function)
    return function


@auto.command()
@click.argument("table", metavar="NAMESPACE.TABLE")
@_rule_options
@click.option(
    "--recorded",
    type=click.IntRange(1, 1_000),
    default=100,
    show_default=True,
    help="How many recorded filters to try.",
)
@click.option(
    "--sample",
    type=click.IntRange(0, 1_000),
    default=0,
    show_default=True,
    help="Read this many blocks for each index or cluster key and measure on them.",
)
@with_session(timeout_s=600.0)
def explain(session: Session, /, table: str, recorded: int, sample: int, **given: Any) -> None:
    """Say for each candidate whether it would be done now, and why or why not; what is left of the budgets; and what
    was done. Changes nothing.

    The options try another rule than the policy's.
    """
    handle = session.lake.table(table)
    ledger = handle.auto_ledger()
    changes = {name: value for name, value in given.items() if value is not None}
    rule = msgspec.structs.replace(ledger.rule or AutoRule(), **changes) if changes else None
    plan = handle.plan_auto(rule, recorded=recorded, sample_blocks=sample)
    if session.as_data:
        session.emit({"plan": plan, "actions": ledger.actions}, plan.verdicts)
        return
    _show_plan(table, plan)
    _show_actions(ledger.actions)


@auto.command("ledger")
@click.argument("table", metavar="NAMESPACE.TABLE")
@with_session()
def ledger(session: Session, table: str) -> None:
    """List what was done, with predicted and measured gains, the latest first."""
    found: AutoLedger = session.lake.table(table).auto_ledger()
    if session.as_data:
        session.emit(found, found.actions)
    elif found.actions:
        _show_actions(found.actions)
    else:
        click.echo(f"nothing was done to {table} yet")


@auto.command("run")
@click.option("--max-actions", type=click.IntRange(min=1), help="Maximum number of actions.")
@engine_options()
def run(session: Session, runtime: EngineOptions, /, table: str, max_actions: int | None) -> None:
    """Do one action after another until none is worth its cost or a budget is used up.

    An action that fails is entered into the ledger and the next one is tried. Exit status 1: all actions failed.
    """
    import time
    import uuid

    from lamella.client.jobs.auto import run_auto

    with runtime.started("auto") as engine, job_context(session, runtime, table, engine, {}, "upkeep") as context:
        done = run_auto(context, new_id=lambda: str(uuid.uuid4()), timer=time.monotonic, max_actions=max_actions)
    if session.as_data:
        session.emit(done, done.actions)
    else:
        _show_result(table, done)
    if done.actions and all(each.state == "failed" for each in done.actions):
        raise click.exceptions.Exit(1)


def _show_result(table: str, done: AutoResult) -> None:
    for each in done.actions:
        click.echo(f"{each.state}: {each.candidate.text}. {each.reason}")
    if done.plan is None:
        return
    if done.plan.blocked:
        click.echo(f"nothing was begun: {done.plan.blocked}")
    elif not done.actions:
        click.echo(f"nothing is to be done; see lamella auto explain {table}")


def _show_plan(table: str, plan: AutoPlan) -> None:
    if not plan.has_policy:
        click.echo(f"the policy of {table} has no rule auto; this is what one without members would decide")
    click.echo(f"snapshot {plan.snapshot_id}, {counted(plan.filters, 'filter')}. {_budget_words(plan.budget)}")
    if plan.blocked:
        click.echo(f"nothing is begun now: {plan.blocked}")
    for each in plan.verdicts:
        click.echo(f"{_LABELS.get(each.decision, each.decision)}: {each.candidate.text}.")
        click.echo(f"   {option_words(each.reason)}")
        if each.decision != "unknown":
            click.echo(f"   {each.candidate.command}")
    if not plan.verdicts:
        click.echo("no change is known to help")
    if not plan.filters:
        click.echo(
            "no filters are recorded: prunes record them unless the setting record_prunes or the table's property "
            "lamella.record_prunes is off"
        )
    for text, reason in plan.left_out.items():
        click.echo(f"left out: {text}: {option_words(reason)}")


_LABELS = {
    "do": "NOW",
    "next": "then",
    "waits": "waits",
    "not_worth": "not worth it",
    "not_allowed": "not allowed",
    "not_repeated": "not repeated",
    "unknown": "cannot tell",
}


def _budget_words(budget: AutoBudget) -> str:
    words = (
        f"Rewritten in 24 hours: {size_text(budget.rewritten_bytes)} of {size_text(budget.rewritten_bytes_limit)}; "
        f"own indexes: {size_text(budget.index_bytes)} of {size_text(budget.index_bytes_limit)}"
    )
    if not budget.is_open:
        words += "; outside of the hours"
        words += "" if budget.opens_ms is None else f" until {time_text(budget.opens_ms)}"
    return words


def _show_actions(actions: tuple[AutoAction, ...]) -> None:
    if not actions:
        return
    print_table(
        ["begun", "change", "state", ("predicted", "right"), ("measured", "right"), ("rewritten", "right"), "why"],
        [
            (
                time_text(each.started_ms),
                each.change,
                each.state,
                _gain(each.candidate.gain),
                _gain(each.measured),
                size_text(each.rewritten_bytes) if each.rewritten_bytes else "",
                each.reason,
            )
            for each in actions[:MAX_LISTED]
        ],
        title=f"actions ({len(actions):,}); skipped blocks before and after",
    )


def _gain(gain: CandidateGain | None) -> str:
    return "" if gain is None else f"{100 * gain.before.skip:.1f} to {100 * gain.after.skip:.1f} %"
