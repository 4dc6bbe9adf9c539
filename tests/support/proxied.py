"""A real nginx with deploy/nginx before services of a test's own."""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stack.mapping import HostMapping
from stack.process import Member
from stack.recipes import Recipe
from stack.supervisor import Stack
from stack.tools import ROOT, debian
from support.ports import free_port


@contextmanager
def proxied(folder: Path, *ports: int, by_table: bool = False) -> Iterator[str]:
    """The address of an nginx with our files before replicas at these ports; ``by_table``: each table at one of them.

    Its log, a line of JSON for each request, is ``nginx.log`` in the folder.
    """
    plan = Stack(folder)
    service = plan.compose.services["proxy"]
    mapping = HostMapping(plan.compose, service, plan.addresses, folder, ROOT)
    mapping.make()
    conf = mapping.mounts["/etc/lamella"]
    port = free_port()
    own = plan.addresses.own["proxy"]
    server = (conf / "server.conf").read_text("utf-8")
    (conf / "server.conf").write_text(server.replace(f"{own}:8080", f"127.0.0.1:{port}"), "utf-8")
    upstream = (conf / ("upstream-by-table.conf" if by_table else "upstream.conf")).read_text("utf-8")
    (line, *_) = lines = re.findall(r"(?m)^ +server .*\n", upstream)
    theirs = "".join(re.sub(r"server \S+", f"server 127.0.0.1:{each}", line) for each in ports)
    (conf / "upstream.conf").write_text(upstream.replace("".join(lines), theirs), "utf-8")
    user = "user root;\n" if os.geteuid() == 0 else ""
    (conf / "nginx.conf").write_text(user + (conf / "nginx.conf").read_text("utf-8"), "utf-8")
    command = [debian("nginx", "nginx-light"), "-c", str(conf / "nginx.conf"), "-g", "daemon off;"]
    member = Member(service, Recipe(command=command, environment={}, health=None), folder / "nginx.log")
    member.start()
    try:
        give_up = time.monotonic() + 300
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 5).close()
                break
            except OSError:
                assert time.monotonic() < give_up, member.tail()
                time.sleep(0.02)
        yield f"http://127.0.0.1:{port}"
    finally:
        member.end()
