"""Write the synchronous client from the asynchronous one: `make sync-client`.

Each module below client/ that is called ``aio``, or lies in a folder of that name, is a source. What is written from it
lies at the same place with ``sync`` for ``aio``: ``async def`` becomes ``def``, ``await`` goes, ``AsyncTable`` becomes
``Table``, in docstrings and comments, too. Examples in docstrings (``>>> ``) lose ``await`` like other code. What the
two clients do differently is in modules written by hand that have the same names for both.

``--check`` writes nothing and fails when a file is not what its source says.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import io
import re
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
CLIENT = Path("client/lamella/client")

#: Names of the asynchronous client, and what the synchronous one has for them.
_NAMES = (
    (r"\bAsync(?=[A-Z])", ""),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\basync_runtime\b", "runtime"),
    (r"(?<=\.)aio\b", "sync"),
)
#: The code of an example in a docstring, without what it shows.
_EXAMPLE = re.compile(r"^( *)>>> .*(?:\n\1\.\.\.(?: .*)?$)*", re.MULTILINE)
#: The width of ``>>> `` and ``... ``.
_PROMPT_CHARS = 4
#: What has no synchronous form.
_LEFT = re.compile(r"async_\w+|asyncio|Coroutine|anext|aiter|aclos\w+|Awaitable")
#: Rules of ruff by which the text is mended: unused imports, their order, and loops that have a shorter form without
#: ``async`` (``yield from``, ``list(...)``).
_MENDED = "F401,I,UP028,C416"


class NoSynchronousForm(Exception):
    """A source uses what this script does not know."""


def sources(checkout: Path) -> list[Path]:
    """The modules that are written by hand, relative to the checkout."""
    found = (path.relative_to(checkout) for path in (checkout / CLIENT).rglob("*.py"))
    return sorted(path for path in found if "aio" in path.with_suffix("").parts)


def written_path(source: Path) -> Path:
    """Where the synchronous module of a source lies."""
    parts = ["sync" if part == "aio" else part for part in source.with_suffix("").parts]
    return Path(*parts).with_suffix(".py")


def files(checkout: Path) -> dict[Path, str]:
    """The texts of all synchronous modules by their paths; raises NoSynchronousForm."""
    return synchronous({path: (checkout / path).read_text("utf-8") for path in sources(checkout)})


def synchronous(texts: dict[Path, str]) -> dict[Path, str]:
    """The synchronous modules of asynchronous ones, laid out; raises NoSynchronousForm."""
    headed = {}
    for source, text in texts.items():
        header = f"# Written by scripts/write_sync_client.py from {source.as_posix()}: change that file.\n"
        headed[written_path(source)] = header + transform(text)
    written = _laid_out(headed)
    for source in texts:
        tokens = tokenize.generate_tokens(io.StringIO(written[written_path(source)]).readline)
        left = {each.string for each in tokens if each.type == tokenize.NAME and _LEFT.fullmatch(each.string)}
        if left:
            names = ", ".join(sorted(left))
            raise NoSynchronousForm(f"{source.as_posix()} uses {names}, for which there is no synchronous form")
    return written


def transform(text: str) -> str:
    """The text without ``async`` and ``await``, with the synchronous names."""
    text = _EXAMPLE.sub(_without_await_in_example, _without_await(text))
    for pattern, name in _NAMES:
        text = re.sub(pattern, name, text)
    return text


def _without_await(code: str) -> str:
    for start, end in sorted(_dropped(code), reverse=True):
        code = code[:start] + code[end:]
    return code


def _without_await_in_example(found: re.Match[str]) -> str:
    lines = [line[len(found[1]) :] for line in found[0].split("\n")]
    code = _without_await("".join(f"{line[_PROMPT_CHARS:]}\n" for line in lines)).removesuffix("\n").split("\n")
    prompts = [line[:_PROMPT_CHARS] for line in lines]
    return "\n".join(found[1] + (prompt + text).rstrip() for prompt, text in zip(prompts, code, strict=True))


def _dropped(text: str) -> Iterator[tuple[int, int]]:
    """Parts of the text that go, as offsets of their beginnings and ends."""
    lines = io.StringIO(text).readlines()
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))

    def begin(node: ast.expr) -> int:
        return starts[node.lineno - 1] + len(lines[node.lineno - 1].encode()[: node.col_offset].decode())

    def end(node: ast.expr) -> int:
        assert node.end_lineno is not None  # noqa: S101  # the parser always sets it
        return starts[node.end_lineno - 1] + len(lines[node.end_lineno - 1].encode()[: node.end_col_offset].decode())

    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and token.string in ("async", "await"):
            at = starts[token.start[0] - 1] + token.start[1]
            yield at, at + len(f"{token.string} ")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.value, ast.Await):
            # (await x).y: the parentheses have no use without the await
            for at in (text.rindex("(", 0, begin(node.value)), text.index(")", end(node.value))):
                yield at, at + 1
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "Awaitable":
            yield begin(node), begin(node.slice)
            yield end(node.slice), end(node)


def _laid_out(texts: dict[Path, str]) -> dict[Path, str]:
    """The texts as ruff writes them."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in texts.items():
            (Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / path).write_text(text, "utf-8")
        for command in (["check", "--fix-only", "--unsafe-fixes", "--select", _MENDED], ["format"]):
            options = ["--quiet", "--no-cache", "--config", str(CHECKOUT / "pyproject.toml")]
            subprocess.run([sys.executable, "-m", "ruff", *command, *options, folder], check=True)
        return {path: (Path(folder) / path).read_text("utf-8") for path in texts}


def stale(checkout: Path, texts: dict[Path, str]) -> Iterator[tuple[Path, str]]:
    """The modules that are not what their sources say, or whose source is gone, and what differs."""
    there = {path.relative_to(checkout) for path in (checkout / CLIENT).rglob("*.py")}
    written = {path for path in there if "sync" in path.with_suffix("").parts}
    for path in sorted(written | set(texts)):
        before = (checkout / path).read_text("utf-8") if path in there else ""
        after = texts.get(path, "")
        if before != after or (path in written and path not in texts):
            lines = difflib.unified_diff(
                before.splitlines(), after.splitlines(), path.as_posix(), "the asynchronous client says", lineterm=""
            )
            yield path, "\n".join(lines)


def write(checkout: Path, texts: dict[Path, str]) -> None:
    """Bring the modules up to date, and remove those whose source is gone."""
    for path, _ in list(stale(checkout, texts)):
        if path not in texts:
            (checkout / path).unlink()
            continue
        (checkout / path).parent.mkdir(exist_ok=True)
        (checkout / path).write_text(texts[path], "utf-8")


def main() -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail when a file is out of date")
    parser.add_argument("--checkout", type=Path, default=CHECKOUT, help="another one than this script's")
    given = parser.parse_args()
    try:
        texts = files(given.checkout)
    except NoSynchronousForm as error:
        sys.exit(str(error))
    if not given.check:
        write(given.checkout, texts)
        return 0
    out_of_date = list(stale(given.checkout, texts))
    for path, difference in out_of_date:
        sys.stderr.write(f"{difference[:4_000]}\n{path.as_posix()} is out of date: make sync-client\n")
    return 1 if out_of_date else 0


if __name__ == "__main__":
    sys.exit(main())
