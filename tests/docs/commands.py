"""Shell blocks as commands, each with what the page shows of its output."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click
import msgspec

from docs.fenced import Fence
from lamella.client.cli.app import cli

_HERE_DOCUMENT = re.compile(r"<<'?(\w+)'?")
_ASSIGNMENT = re.compile(r"^\w+=")
#: What may stand between two commands of one line.
_SEPARATORS = frozenset({"|", "||", "&&", ";", "&"})
#: Words in front of a command that run it.
_RUNNERS = frozenset({"sudo", "time"})


class Command(msgspec.Struct, frozen=True):
    """One command. ``output``: the lines that the page shows below it."""

    line: int
    text: str
    output: tuple[str, ...] = ()

    @property
    def programs(self) -> list[list[str]]:
        """The programs that it runs, each with its arguments, without assignments in front of them."""
        return list(_programs(self.text))


def commands(fence: Fence) -> list[Command]:
    """The commands of a ``console`` block (behind a prompt, with output) or of a ``bash`` block (nothing else)."""
    return list(_commands(fence))


def _commands(fence: Fence) -> Iterator[Command]:
    prompt = "$ " if fence.language == "console" else ""
    lines = fence.text.split("\n")
    at = 0
    while at < len(lines):
        first, text = at, lines[at]
        at += 1
        if not text.strip() or (not prompt and text.lstrip().startswith("#")):
            continue
        if not text.startswith(prompt):
            raise ValueError(f"{fence}: output without a command: {text!r}")
        text = text.removeprefix(prompt)
        end = _HERE_DOCUMENT.search(text)
        while text.endswith("\\") or (end and lines[at - 1] != end.group(1)):
            text += "\n" + lines[at]
            at += 1
        output = []
        while prompt and at < len(lines) and not lines[at].startswith(prompt):
            output.append(lines[at])
            at += 1
        yield Command(fence.line + first, text, tuple(output))


def _programs(text: str) -> Iterator[list[str]]:
    end = _HERE_DOCUMENT.search(text)
    lexer = shlex.shlex(text[: text.index("\n", end.end())] if end else text, posix=True, punctuation_chars="|&;")
    lexer.whitespace_split = True
    words: list[str] = []
    for token in [*lexer, ";"]:
        if token not in _SEPARATORS:
            words.append(token)
            continue
        while words and (_ASSIGNMENT.match(words[0]) or words[0] in _RUNNERS):
            words = words[1:]
        if words:
            yield words
        words = []


def check_usage(arguments: list[str]) -> None:
    """Have the real command read its arguments, and run nothing; raises click.UsageError."""
    command: click.Command = cli
    context, rest = None, [each for each in arguments if each not in ("<", ">", "-h", "--help")]
    while True:
        context = command.make_context(command.name or "lamella", list(rest), parent=context)
        if not isinstance(command, click.Group):
            return
        _, found, rest = command.resolve_command(context, context._protected_args + context.args)
        if found is None:
            raise click.UsageError(f"no such command: {rest}")
        command = found
