"""The upkeep of a table in the console: its policy and its schedules, by forms and by clicks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import Page, expect

from fixtures_server import ServerProcess, start_shared
from lamella.client import Lamella
from lamella.service.dashboard.upkeep import PRESET, duration_s, duration_text, read_rules, rule_lines
from lamella.snapshot.errors import InvalidRequest, PolicyNotFound
from lamella.snapshot.wire import CompactRule, Policy, PutSchedule, ReclusterRule, Rule, ScheduleInfo, VacuumRule
from support.dashboard_tables import EVENTS, fill
from support.posted_forms import Form, Screens

Check = Callable[[Page], None]
Take = Callable[[Page, str], None]
UPKEEP = "/ui/tables/shop/events/upkeep"
SCHEDULE = f"{UPKEEP}/schedule"


@pytest.fixture(scope="module")
def shared_server(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A service of this file's own, since its tests change policies."""
    folder = tmp_path_factory.mktemp("dashboard-upkeep")
    server = start_shared(pytestconfig, folder, {"warehouse": folder / "warehouse"})
    with Lamella(server.url) as lake:
        fill(lake, folder, scale=0.001)
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def nothing_left(shared_server: ServerProcess) -> Iterator[None]:
    """No policy or schedule outlives its test."""
    yield
    with Lamella(shared_server.url) as lake:
        table = lake.table(EVENTS)
        for schedule in table.schedules():
            table.drop_schedule(schedule.name)
        if policy_of(lake) is not None:
            table.drop_policy()


def policy_of(lake: Lamella) -> Policy | None:
    """The policy of the table; None without one."""
    try:
        return lake.table(EVENTS).policy().policy
    except PolicyNotFound:
        return None


def schedules_of(lake: Lamella) -> list[ScheduleInfo]:
    """The schedules of the table."""
    return list(lake.table(EVENTS).schedules())


def filled_form(screens: Screens) -> Form:
    """The form of the page, without the fields of rules that are off."""
    return screens.get(UPKEEP)


def test_one_button_sets_the_usual_rules_and_keeps_those_that_exist(screens: Screens, lake: Lamella) -> None:
    """A rule of one's own is not replaced, and a second time there is nothing to add."""
    lake.table(EVENTS).set_policy(Policy(compact=CompactRule(small_blocks=7)))
    screens.post(f"{UPKEEP}/preset", screens.get(UPKEEP))
    found = policy_of(lake)
    assert found == Policy(
        compact=CompactRule(small_blocks=7),
        recluster=PRESET.recluster,
        purge=PRESET.purge,
        index_refresh=PRESET.index_refresh,
    )
    assert "Keep this table in shape" not in screens.get(UPKEEP).text


def test_saving_changes_what_the_form_shows_and_keeps_the_rest(screens: Screens, lake: Lamella) -> None:
    """Arguments, priorities and time limits of rules, which the form does not show, stay."""
    rule = CompactRule(small_blocks=7, arguments={"max_bytes": 5_000_000}, priority=-3, timeout_s=60)
    lake.table(EVENTS).set_policy(Policy(compact=rule, verify=Rule(every_s=86_400)))
    form = screens.get(UPKEEP)
    form.fields |= {"compact": "on", "compact.threshold": "9", "compact.every": "2 d", "compact.cool_down": "30 min"}
    form.fields |= {"vacuum": "on", "vacuum.threshold": "1,000", "vacuum.execute": "on"}
    screens.post(f"{UPKEEP}/policy", form)
    assert policy_of(lake) == Policy(
        compact=CompactRule(
            small_blocks=9,
            every_s=172_800,
            cool_down_s=1_800,
            arguments={"max_bytes": 5_000_000},
            priority=-3,
            timeout_s=60,
        ),
        vacuum=VacuumRule(snapshots=1_000, arguments={"execute": True}),
    )


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"compact": "on"}, "never due"),
        ({"compact": "on", "compact.threshold": "many"}, "enter a whole number"),
        ({"compact": "on", "compact.threshold": "-3"}, "must be a number from 1"),
        ({"recluster": "on", "recluster.threshold": "nan"}, "must be a number from 1"),
        ({"verify": "on", "verify.every": "soon"}, "enter a duration"),
        ({"verify": "on", "verify.every": "0.2 s"}, "at least a second"),
        ({}, "choose a rule"),
    ],
)
def test_what_cannot_be_meant_is_said_beside_its_rule(
    screens: Screens, lake: Lamella, fields: dict[str, str], text: str
) -> None:
    """The page comes back with the input and the reason, and nothing is changed."""
    form = screens.get(UPKEEP)
    form.fields |= fields
    answer = Form(screens.post(f"{UPKEEP}/policy", form, expect=400).text)
    assert any(text in alert.replace("Enter", "enter").replace("Choose", "choose") for alert in answer.alerts)
    assert {name: answer.fields[name] for name in fields if "." in name} == {
        name: value for name, value in fields.items() if "." in name
    }
    assert policy_of(lake) is None


def test_a_policy_that_somebody_changed_meanwhile_is_not_overwritten(screens: Screens, lake: Lamella) -> None:
    """The form is of the policy before; the page says so, and saving again works."""
    form = screens.get(UPKEEP)
    form.fields |= {"compact": "on", "compact.threshold": "9"}
    lake.table(EVENTS).set_policy(Policy(verify=Rule(every_s=60)))
    answer = Form(screens.post(f"{UPKEEP}/policy", form, expect=409).text)
    assert "changed the policy meanwhile" in " ".join(answer.alerts)
    assert policy_of(lake) == Policy(verify=Rule(every_s=60))
    answer.fields |= {"compact": "on"}
    screens.post(f"{UPKEEP}/policy", answer)
    assert policy_of(lake) == Policy(compact=CompactRule(small_blocks=9))


def test_a_policy_is_removed_after_a_question(screens: Screens, lake: Lamella) -> None:
    """The question names the rules."""
    lake.table(EVENTS).set_policy(Policy(verify=Rule(every_s=60)))
    question = screens.get(f"{UPKEEP}/policy/remove")
    assert "verify" in question.text
    screens.post(f"{UPKEEP}/policy/remove", question)
    assert policy_of(lake) is None


def test_a_schedule_is_made_paused_resumed_edited_and_removed(screens: Screens, lake: Lamella) -> None:
    """Each step by its form; what the form does not name stays."""
    form = screens.get(SCHEDULE, kind="vacuum")
    form.fields |= {"schedule_name": "clean", "schedule_when": "every", "schedule_every": "6 h", "execute": "on"}
    screens.post(SCHEDULE, form)
    (made,) = schedules_of(lake)
    assert (made.name, made.kind, made.every_s, made.arguments) == ("clean", "vacuum", 21_600, {"execute": True})
    form.fields |= {"name": "clean", "enabled": "no"}
    screens.post(f"{SCHEDULE}/switch", form)
    assert not schedules_of(lake)[0].enabled
    edit = screens.get(SCHEDULE, name="clean")
    edit.fields |= {"schedule_when": "cron", "schedule_cron": "15 4 * * 1-5", "schedule_time_zone": "Europe/Berlin"}
    screens.post(SCHEDULE, edit)
    (edited,) = schedules_of(lake)
    assert (edited.cron, edited.time_zone, edited.every_s) == ("15 4 * * 1-5", "Europe/Berlin", None)
    assert not edited.enabled
    form.fields["enabled"] = "yes"
    screens.post(f"{SCHEDULE}/switch", form)
    assert schedules_of(lake)[0].enabled
    screens.post(f"{SCHEDULE}/remove", screens.get(f"{SCHEDULE}/remove", name="clean"))
    assert schedules_of(lake) == []


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"schedule_when": "cron", "schedule_cron": "often"}, "five fields"),
        ({"schedule_when": "every", "schedule_every": ""}, "enter a duration"),
        ({"schedule_when": "every", "schedule_every": "0"}, "every_s"),
        ({"schedule_time_zone": "Atlantis"}, "no time zone"),
        ({"schedule_name": "not a name"}, "not a schedule name"),
        ({"max_bytes": "lots"}, "whole number"),
        ({"schedule_name": "taken"}, "already"),
    ],
)
def test_a_schedule_that_cannot_be_meant_is_refused_with_its_input(
    screens: Screens, lake: Lamella, fields: dict[str, str], text: str
) -> None:
    """The reason stands on the page, and the input is still there."""
    lake.table(EVENTS).set_schedule("taken", PutSchedule(kind="verify", every_s=60))
    form = screens.get(SCHEDULE, kind="compact")
    form.fields |= {"schedule_when": "nightly", "schedule_name": "fine", **fields}
    answer = screens.post(SCHEDULE, form, expect=400).text
    assert text in answer.replace("Enter", "enter")
    assert {name: Form(answer).fields[name] for name in fields if name != "schedule_when"} == {
        name: value for name, value in fields.items() if name != "schedule_when"
    }
    assert [each.name for each in schedules_of(lake)] == ["taken"]


def test_compaction_every_night_takes_three_clicks_from_home(
    page: Page, lake: Lamella, axe: Check, screenshot: Take
) -> None:
    """The table, its upkeep, the button."""
    page.goto("/ui")
    page.get_by_role("row").get_by_role("link", name=EVENTS, exact=True).first.click()
    page.get_by_role("navigation", name="Table").get_by_role("link", name="Upkeep").click()
    page.get_by_role("button", name="Compact every night").click()
    expect(page.get_by_role("status").filter(has_text="The schedule is saved")).to_be_visible()
    (made,) = schedules_of(lake)
    assert (made.kind, made.cron, made.enabled) == ("compact", "0 2 * * *", True)
    page.get_by_role("button", name="Keep this table in shape").click()
    expect(page.get_by_role("checkbox", name="compact")).to_be_checked()
    axe(page)
    screenshot(page, "upkeep")
    page.get_by_role("link", name="Edit nightly-compact").click()
    axe(page)
    screenshot(page, "schedule")


@pytest.mark.parametrize(("width", "scheme"), [(1440, "light"), (1024, "dark"), (390, "light")])
def test_no_value_of_the_upkeep_is_cut_off(
    new_page: Callable[..., Page], lake: Lamella, screenshot: Take, width: int, scheme: str
) -> None:
    """The page is as wide as the screen, and no table in it scrolls."""
    table = lake.table(EVENTS)
    table.set_policy(PRESET)
    table.set_schedule("a-name-that-is-longer-than-most-names-of-schedules", PutSchedule(kind="verify", every_s=60))
    page = new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.goto(UPKEEP)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for part in page.locator(".wrap").all():
        assert part.evaluate("part => part.scrollWidth - part.clientWidth") <= 0
    screenshot(page, f"upkeep-{width}")


@given(st.integers(0, 400 * 86_400))
def test_durations_are_read_as_they_are_written(seconds: int) -> None:
    """What the form shows means the same when it is sent back."""
    assert duration_s(duration_text(seconds)) == seconds


@pytest.mark.parametrize("text", ["", "x", "1 y", "-1 h", "1e3 s", "\u0661 h", "1 h 2", "nan", "0.5 s"])
def test_other_durations_are_refused(text: str) -> None:
    """No guess is made."""
    with pytest.raises(InvalidRequest):
        duration_s(text)


RULES = st.builds(Rule, every_s=st.integers(1, 10**6), cool_down_s=st.integers(0, 10**6), priority=st.integers(-5, 0))


@given(
    st.builds(
        Policy,
        compact=st.none() | st.builds(CompactRule, small_blocks=st.none() | st.integers(1, 10**12)),
        recluster=st.none() | st.builds(ReclusterRule, average_depth=st.none() | st.floats(1, 1e9)),
        vacuum=st.none() | st.builds(VacuumRule, arguments=st.sampled_from([{}, {"execute": True}])),
        verify=st.none() | RULES,
    )
)
def test_a_form_that_is_sent_back_as_it_is_changes_no_policy(policy: Policy) -> None:
    """Whatever rules there are."""
    texts: dict[str, Any] = {}
    for line in rule_lines(policy):
        job = line.kind.job
        texts |= {f"{job}.threshold": line.threshold, f"{job}.every": line.every, f"{job}.cool_down": line.cool_down}
        texts |= {job: "on"} if line.is_on else {}
        texts |= {f"{job}.execute": "on"} if line.deletes else {}
    found, lines = read_rules(texts, policy)
    assert found == policy
    assert not any(line.problem for line in lines)
