"""Tests the judge: deliberately weak or wrong planners must fail, otherwise the figures mean nothing."""

from __future__ import annotations

import numpy as np

from sharp.judge import Tally, failures
from sharp.oracle import Truth
from sharp.planner import Plan


def self_check(truths: list[Truth]) -> list[str]:
    """One sentence for each deliberate fault, with what the judge said of it.

    Raises:
        RuntimeError: the judge let a fault pass, or found one in the ideal planner.
    """
    plans = {
        "keeps every block": [Plan(np.ones_like(t.some), t.decided_all) for t in truths],
        "leaves out one block that matches": [_without_one(t) if i == 0 else _ideal(t) for i, t in enumerate(truths)],
        "calls one block ALL that is not": [_one_all(t) if i == 0 else _ideal(t) for i, t in enumerate(truths)],
        "keeps one of thirty that it could prune": [_blunt(t, 30) for t in truths],
    }
    if found := _verdict([_ideal(t) for t in truths], truths):
        raise RuntimeError(f"the judge found fault with the ideal planner: {found}")
    said = []
    for fault, made in plans.items():
        found = _verdict(made, truths)
        if not found:
            raise RuntimeError(f"the judge let a planner pass that {fault}")
        said.append(f"a planner that {fault}: {found[0]}")
    return said


def _verdict(plans: list[Plan], truths: list[Truth]) -> list[str]:
    tally = Tally()
    for plan, truth in zip(plans, truths, strict=True):
        tally.add(truth, plan)
    return failures({"judged": tally})


def _ideal(truth: Truth) -> Plan:
    return Plan(~truth.decided_none, truth.decided_all)


def _without_one(truth: Truth) -> Plan:
    selected = ~truth.decided_none
    selected[np.flatnonzero(truth.some)[0]] = False
    return Plan(selected, truth.decided_all)


def _one_all(truth: Truth) -> Plan:
    every = truth.decided_all.copy()
    every[np.flatnonzero(truth.some & ~truth.every)[0]] = True
    return Plan(~truth.decided_none, every)


def _blunt(truth: Truth, each: int) -> Plan:
    selected = ~truth.decided_none
    selected[np.flatnonzero(truth.decided_none)[::each]] = True
    return Plan(selected, truth.decided_all)
