"""Runs the blocks of one page, in their order."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import os
import re
import shlex
import subprocess
import tomllib
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from unittest.mock import patch

import click
from packaging.requirements import Requirement

from docs.commands import Command, check_usage, commands
from docs.fenced import ROOT, Fence, fences
from docs.not_run import NOT_RUN, NotRun
from docs.scene import Scene, parsed
from docs.shapes import missing_line
from docs.stage import Stage

DATA = ("json", "toml", "yaml")
#: What runs in the page's shell.
SHELL = frozenset(
    {"lamella", "curl", "echo", "printf", "cat", "cp", "ls", "mkdir", "python", "export", "head", "sort", "grep", "jq"}
)
#: Commands that go on until they are ended.
_ENDLESS = (("lamella", "serve"), ("lamella", "worker"))


class Runner:
    """The blocks of one page on its stage."""

    def __init__(self, page: str, scene: Scene, stage: Stage) -> None:
        self.page = page
        self.scene = scene
        self.stage = stage
        self._data = iter(scene.data)
        self._texts = iter(scene.texts)
        #: What the block before wrote.
        self._written: str | None = None

    def run(self) -> None:
        """Run all blocks; raises AssertionError that names the block and the line."""
        found = fences(self.page)
        for kinds, rules, name in ((DATA, self.scene.data, "data"), (("text",), self.scene.texts, "texts")):
            count = sum(fence.language in kinds for fence in found)
            assert len(rules) == count, f"{self.page} has {count} blocks of {kinds}, its scene {len(rules)} {name}"
        for fence in found:
            try:
                self._block(fence)
            except (Exception, SystemExit) as error:
                note = getattr(error, "__notes__", [])
                raise AssertionError(f"{fence}: {type(error).__name__}: {error} {note}\n{fence.text}") from error

    def _block(self, fence: Fence) -> None:
        run: dict[str, Callable[[Fence], None]] = {
            "python": self._python,
            "sql": self._sql,
            "http": self._http,
            "console": self._commands,
            "bash": self._commands,
            "text": self._text,
            **dict.fromkeys(DATA, self._parse),
        }
        assert fence.language in run, "no rule covers a block of this language"
        run[fence.language](fence)

    def _parse(self, fence: Fence) -> None:
        text = self.stage.meant(fence.text)
        parsed(fence.language, text)
        next(self._data)(self.stage, text)

    def _text(self, fence: Fence) -> None:
        self.stage.names["written"] = self._written or ""
        next(self._texts)(self.stage, fence.text)

    def _python(self, fence: Fence) -> None:
        source = "\n" * (fence.line - 1) + self.stage.meant(fence.text)
        code = compile(source, self.page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        out = io.StringIO()
        own = {} if self.scene.spark else {"LAMELLA_URL": self.stage.url}
        with contextlib.redirect_stdout(out), contextlib.chdir(self.stage.work), patch.dict(os.environ, own):
            done = eval(code, self.stage.names)  # noqa: S307  # the page's own code is what is tested
            if inspect.iscoroutine(done):
                asyncio.run(done)
        self._written = self.stage.shown(out.getvalue())
        self.stage.keep_alive()

    def _sql(self, fence: Fence) -> None:
        spark = self.stage.names["spark"]
        text = re.sub(r"--.*$", "", self.stage.meant(fence.text), flags=re.MULTILINE)
        statements = [each.strip() for each in re.split(r";\s*(?:\n|$)", text)]
        assert all(each == statements[-1] or each for each in statements)
        for statement in filter(None, statements):
            assert not re.search(r"\n(SELECT|INSERT|ALTER)\b", statement) or statement.startswith(
                ("CREATE", "INSERT")
            ), f"end each statement with a semicolon: {statement}"
            spark.sql(statement).collect()

    def _http(self, fence: Fence) -> None:
        head, _, body = self.stage.meant(fence.text).partition("\n")
        method, path = head.split(" ", 1)
        request = urllib.request.Request(  # noqa: S310  # our own URL
            self.stage.url + path.strip(), data=body.strip().encode() or None, method=method
        )
        if body.strip():
            request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
                self._written = answer.read().decode()
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{error.code}: {error.read().decode()}") from error

    def _commands(self, fence: Fence) -> None:
        for command in commands(fence):
            try:
                self._command(command)
            except AssertionError as error:
                error.add_note(f"line {command.line}: {command.text}")
                raise

    def _command(self, command: Command) -> None:
        listed = next((entry for entry in NOT_RUN if entry.is_about(self.page, command.text)), None)
        if listed is not None:
            check_lamella_part(command)
            return
        if not command.programs or command.programs[0][0] == "export":
            self.stage.keep(shlex.split(command.text, comments=True)[command.text.startswith("export") :])
            return
        plain = [check(words) for words in command.programs for check in [checked_only(words[0])] if check is not None]
        if plain:
            return
        for words in command.programs:
            assert words[0] in SHELL, f"no rule covers the program {words[0]!r}"
        last = [word for word in shlex.split(command.text, comments=True) if word != "&"]
        if tuple(last[:2]) in _ENDLESS and "--once" not in last and "--help" not in last:
            check_usage(last[1:])
            self.stage.start(last)
            return
        done = self.stage.run(command.text)
        self._written = self.stage.shown(done.stdout)
        assert done.returncode == 0, f"status {done.returncode}: {self._written}"
        missing = missing_line(command.output, self._written)
        assert missing is None, f"not in the output: {missing!r}\n{self._written}"


def checked_only(program: str) -> Callable[[list[str]], None] | None:
    """How commands of a program are checked that are not carried out; None: they are."""
    return {"make": _check_make, "pip": _check_pip, ".venv/bin/pytest": _check_paths, "python": None}.get(program) or (
        _check_paths if program.startswith((".venv/", "bench/")) else None
    )


def _check_make(words: list[str]) -> None:
    """``make`` has the target; what it would do is not done."""
    environment = {**os.environ, "MAKEFLAGS": ""}
    done = subprocess.run(["make", "-n", *words[1:]], check=False, cwd=ROOT, capture_output=True, env=environment)
    assert done.returncode == 0, done.stderr.decode()


def _check_pip(words: list[str]) -> None:
    """What is installed is this distribution, with extras that it has."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert words[:2] == ["pip", "install"]
    for word in words[2:]:
        # The checkout is the current folder, or the folder `lamella`.
        wanted = Requirement(re.sub(r"^(\.|\./lamella)(?=\[|$)", "lamella", word))
        assert wanted.name == project["name"]
        assert wanted.extras <= set(project["optional-dependencies"])


def _check_paths(words: list[str]) -> None:
    """The files and folders that are named are in the repository."""
    for word in words[1:]:
        assert not re.match(r"(bench|tests|docs|scripts|deploy)/", word) or (ROOT / word.split("::")[0]).exists(), word


def check_lamella_part(command: Command) -> None:
    """Where a command that is not run hands arguments to ``lamella``, the real command must take them."""
    for words in command.programs:
        at = next(
            (n for n, word in enumerate(words) if word == "lamella" or word.endswith(("__main__.py", "job.py"))), None
        )
        if at is not None and at + 1 < len(words):
            try:
                check_usage(words[at + 1 :])
            except click.UsageError as error:
                raise AssertionError(f"lamella would not take {words[at + 1 :]}: {error}") from error


def stale() -> Iterator[NotRun]:
    """Entries of the list that no command of their page is met by."""
    for entry in NOT_RUN:
        shell = (
            [f for f in fences(entry.page) if f.language in ("console", "bash")] if (ROOT / entry.page).exists() else []
        )
        if not any(entry.is_about(entry.page, command.text) for fence in shell for command in commands(fence)):
            yield entry
