"""Servers of the tests' own, that may be stopped, killed and started again."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.wire import PATIENCE, until

HOST = "127.0.0.1"
FAST = {"postgresql": signal.SIGINT, "mysql": signal.SIGTERM}
"""The signal that ends a server in good order without waiting for its clients."""

MARIADB_SETUP = """
CREATE DATABASE IF NOT EXISTS outbox CHARACTER SET utf8mb4;
CREATE USER IF NOT EXISTS outbox@'127.0.0.1';
GRANT ALL ON outbox.* TO outbox@'127.0.0.1';
"""


def program(name: str) -> str | None:
    """Find a server's program, also where Debian keeps it off the path."""
    homes = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", *map(str, homes)])
    return shutil.which(name, path=path)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server((HOST, 0)) as found:
        return int(found.getsockname()[1])


def answers(port: int) -> bool:
    """Say whether somebody listens there."""
    try:
        socket.create_connection((HOST, port), 1).close()
    except OSError:
        return False
    return True


@dataclass(slots=True)
class Server:
    """One server process, its place and its port."""

    vendor: str
    home: Path
    command: Sequence[str]
    user: str | None
    """Who it runs as, where the tests run as root; servers refuse to."""

    port: int
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What leads Django to it."""

    probe: Sequence[str] = ()
    """A program that succeeds once it takes sessions, where it listens before that."""

    _process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it takes sessions."""
        with (self.home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command, stdout=log, stderr=log, **run_as(self.user)
            )
        until(self.is_ready, what=f"no {self.vendor} of our own")

    def is_ready(self) -> bool:
        if not answers(self.port):
            return False
        return not self.probe or not subprocess.run(self.probe, check=False).returncode

    def stop(self, number: int | None = None) -> None:
        """End it, by that signal or in good order; wait until it has ended."""
        if self._process is None:
            return
        self._process.send_signal(number or FAST.get(self.vendor, signal.SIGTERM))
        self._process.wait(PATIENCE)
        self._process = None


def run_as(user: str | None) -> dict[str, Any]:
    """Return the arguments that have `subprocess` run a program as that user."""
    if user is None:
        return {}
    return {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}


@contextmanager
def home_of(name: str) -> Iterator[tuple[Path, str | None]]:
    """Make a directory that this user may use, where root must not run its server."""
    home = Path(tempfile.mkdtemp(prefix="outbox-"))
    user = name if os.getuid() == 0 else None
    home.chmod(0o755)
    if user is not None:
        shutil.chown(home, user)
    try:
        yield home, user
    finally:
        shutil.rmtree(home)


@contextmanager
def postgresql() -> Iterator[Server]:
    """Make a PostgreSQL that survives being killed, not a power cut."""
    with home_of("postgres") as (home, user):
        data, port = str(home / "data"), free_port()
        quick = ["--auth=trust", "--username=postgres", "--no-sync", "--no-locale"]
        make = [str(program("initdb")), *quick, "--encoding=UTF8", "--pgdata", data]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL, **run_as(user))
        said = {
            "listen_addresses": HOST,
            "unix_socket_directories": str(home),
            "fsync": "off",
            "shared_buffers": "16MB",
        }
        options = [part for pair in said.items() for part in ("-c", "=".join(pair))]
        server = Server(
            "postgresql",
            home,
            [str(program("postgres")), "-D", data, "-p", str(port), *options],
            user,
            port,
            {"NAME": "postgres", "USER": "postgres", "PASSWORD": ""},
            [str(program("pg_isready")), "-q", "-h", HOST, "-p", str(port)],
        )
        with running(server):
            yield server


@contextmanager
def mariadb() -> Iterator[Server]:
    """Make a MariaDB with a user who has no rights past its own database."""
    with home_of("mysql") as (home, user):
        data, port = str(home / "data"), free_port()
        make = [str(program("mariadb-install-db")), "--no-defaults", "--skip-test-db"]
        make += [f"--datadir={data}", "--auth-root-authentication-method=normal"]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL, **run_as(user))
        setup = home / "setup.sql"
        setup.write_text(MARIADB_SETUP.replace("\n", " ").replace("; ", ";\n"))
        said = {
            "datadir": data,
            "port": str(port),
            "bind-address": HOST,
            "socket": str(home / "socket"),
            "pid-file": str(home / "pid"),
            "init-file": str(setup),
            "innodb-buffer-pool-size": "32M",
            "innodb-log-file-size": "16M",
        }
        options = [f"--{name}={value}" for name, value in said.items()]
        server = Server(
            "mysql",
            home,
            [
                str(program("mariadbd")),
                "--no-defaults",
                "--skip-name-resolve",
                *options,
            ],
            user,
            port,
            {"NAME": "outbox", "USER": "outbox", "PASSWORD": ""},
        )
        with running(server):
            yield server


@contextmanager
def running(server: Server) -> Iterator[None]:
    """Have it run meanwhile, however often it is stopped."""
    try:
        server.start()
        yield
    finally:
        server.stop(signal.SIGKILL)


MAKERS: dict[str, Callable[[], Any]] = {"postgresql": postgresql, "mysql": mariadb}
NEEDS = {
    "postgresql": ("initdb", "postgres", "pg_isready"),
    "mysql": ("mariadb-install-db", "mariadbd", "mariadb"),
}
