"""docs/cli.md and the command say the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from lamella.client.cli.app import cli
from lamella.client.cli.connection import DEFAULT_URL

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
COMMON = "Options of every command that asks the service"
#: Sections that describe options once for several commands, with a test for the commands that they are about.
SHARED: dict[str, Callable[[str, set[str]], bool]] = {
    COMMON: lambda _name, own: "--url" in own,
    "Options of every command with a result": lambda _name, own: "--output" in own,
    "Options of serve, config and catalog": lambda _name, own: "--config" in own,
    "Options of serve and config": lambda _name, own: "--insecure" in own,
    "Options of commands that rewrite rows": lambda _name, own: "--engine" in own,
    "Options of compact, recluster and purge": lambda _name, own: {"--max-blocks", "--dry-run"} <= own,
    "Options of tag create and tag move": lambda name, _own: name in ("lamella tag create", "lamella tag move"),
    "Options of every import": lambda name, _own: name.startswith("lamella import "),
    "Options of every schema change": lambda name, _own: (
        name.startswith("lamella schema ") and name.split()[2] not in ("show", "add-check")
    ),
}


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Every command below one that does something itself, by its full name."""
    if isinstance(command, click.Group):
        for sub, below in command.commands.items():
            yield from commands(below, f"{name} {sub}")
    else:
        yield name, command


def usage(name: str, command: click.Command) -> str:
    """How a command's heading must look: its name and its arguments."""
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    words = [a.metavar or (a.name or "").upper() for a in arguments]
    shown = [word if a.required else f"[{word}]" for word, a in zip(words, arguments, strict=True)]
    return " ".join([name, *shown])


def options(command: click.Command) -> set[str]:
    """A command's long options, but --help."""
    found = {o for p in command.params if isinstance(p, click.Option) for o in p.opts + p.secondary_opts}
    return {o for o in found if o.startswith("--")} - {"--help"}


def sections() -> dict[str, str]:
    """The page's sections by heading, without backticks."""
    parts = re.split(r"^#{2,3} (.+)$", TEXT, flags=re.MULTILINE)
    return {heading.replace("`", ""): body for heading, body in zip(parts[1::2], parts[2::2], strict=True)}


def shared(name: str, command: click.Command) -> dict[str, str]:
    """The sections that a command shares with others."""
    found = sections()
    return {heading: found[heading] for heading, is_about in SHARED.items() if is_about(name, options(command))}


def described(body: str) -> set[str]:
    """The options that a section's table describes."""
    return set(re.findall(r"^\| `(--[a-z-]+)", body, flags=re.MULTILINE))


def test_every_command_has_a_section_and_every_section_a_command() -> None:
    """Headings are the commands with their arguments, no more and no fewer."""
    groups = {f"lamella {name}" for name, command in cli.commands.items() if isinstance(command, click.Group)}
    wanted = {usage(name, command) for name, command in commands(cli, "lamella")} | groups
    assert set(sections()) - set(SHARED) == wanted


def test_every_option_is_described_and_every_described_option_is_there() -> None:
    """The table below a heading has the command's own options; those that commands share are described once."""
    found = sections()
    used: set[str] = set()
    for name, command in commands(cli, "lamella"):
        sections_of_several = shared(name, command)
        used |= set(sections_of_several)
        common = {option for body in sections_of_several.values() for option in described(body)}
        assert common <= options(command), name
        assert described(found[usage(name, command)]) == options(command) - common, name
    assert used == set(SHARED)


def test_every_option_has_a_help_text() -> None:
    """`--help` explains every option and every command."""
    for name, command in commands(cli, "lamella"):
        assert command.help, name
        assert all(p.help for p in command.params if isinstance(p, click.Option)), name


def test_the_defaults_are_those_of_the_command() -> None:
    """Each "Default: ..." on the page is what the command does."""
    found = sections()
    assert f"Default: `{DEFAULT_URL}`" in found[COMMON]
    for name, command in commands(cli, "lamella"):
        several = [body for heading, body in shared(name, command).items() if heading != COMMON]
        body = "\n".join([found[usage(name, command)], *several])
        for parameter in (p for p in command.params if isinstance(p, click.Option)):
            line = re.search(rf"^\| `{parameter.opts[0]} .*$", body, flags=re.MULTILINE)
            default = parameter.default
            if line and not parameter.is_flag and isinstance(default, int | float | str) and parameter.name != "level":
                assert re.search(
                    rf"Default: `?{re.escape(f'{default:g}' if isinstance(default, float) else str(default))}",
                    line.group(),
                ), (name, line)
