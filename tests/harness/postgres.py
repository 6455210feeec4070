"""A PostgreSQL of Debian's in a folder of its own, as an unprivileged user, behind a Unix socket and a password."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import quote

from harness.certificates import Certificate
from harness.wait import until

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
USER = "jitney"


def program() -> Path | None:
    """The newest one that is installed."""
    return PROGRAMS[-1] if PROGRAMS else None


class Postgres:
    """A running database."""

    def __init__(self, certificate: Certificate | None = None) -> None:
        self.bin = program().parent
        self.port = 5432
        """Only a name of the socket, unless it speaks TLS."""
        self.folder = Path(tempfile.mkdtemp(prefix="pg-"))
        """A short path, for the socket in it."""
        self.password = self.folder / "password"
        self.password.write_text(secrets.token_hex(8) + "\n")
        self.account = next((row for row in pwd.getpwall() if row.pw_name in ("postgres", "nobody")), None)
        if os.geteuid() == 0:
            for path in (self.folder, self.password):
                os.chown(path, self.account.pw_uid, self.account.pw_gid)
        login = ["--username", USER, "--auth", "scram-sha-256", "--pwfile", str(self.password)]
        self._run("initdb", "--pgdata", str(self.folder / "data"), "--encoding", "UTF8", "--locale", "C", *login)
        self.options = self._secured(certificate) if certificate else ["-c", "listen_addresses="]
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def _secured(self, certificate: Certificate) -> list[str]:
        """The options with which it listens on a free port with TLS; the key must be its own."""
        paths = {"ssl_cert_file": self.folder / "cert.pem", "ssl_key_file": self.folder / "key.pem"}
        for source, path in zip((certificate.cert, certificate.key), paths.values(), strict=True):
            path.write_bytes(source.read_bytes())
            path.chmod(0o600)
            if os.geteuid() == 0:
                os.chown(path, self.account.pw_uid, self.account.pw_gid)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        files = [word for name, path in paths.items() for word in ("-c", f"{name}={path}")]
        return ["-c", "listen_addresses=127.0.0.1", "-c", "ssl=on", "-p", str(self.port), *files]

    def _command(self, name: str, *arguments: str) -> list[str]:
        # It refuses to run as root.
        as_user = ["setpriv", f"--reuid={self.account.pw_uid}", f"--regid={self.account.pw_gid}", "--clear-groups"]
        return [*(as_user if os.geteuid() == 0 else []), str(self.bin / name), *arguments]

    def _run(self, name: str, *arguments: str) -> None:
        done = subprocess.run(self._command(name, *arguments), capture_output=True, text=True, cwd="/", check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    @property
    def url(self) -> str:
        """Without its password."""
        return f"postgres://{USER}@{quote(str(self.folder), safe='')}/postgres"

    @property
    def flags(self) -> list[str | Path]:
        """For a server that keeps its jobs here."""
        return ["--jobs-database", self.url, "--jobs-database-password", self.password]

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        options = ["-k", str(self.folder), *self.options]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self._command("postgres", "-D", str(self.folder / "data"), *options), stderr=log, stdout=log, cwd="/"
            )
        ready = [str(self.bin / "pg_isready"), "-q", "-h", str(self.folder), "-p", str(self.port)]
        until(lambda: subprocess.run(ready, check=False).returncode == 0, "PostgreSQL answers")

    def stop(self) -> None:
        """Ends it and its connections, as a restart does."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)

    def rows(self, statement: str) -> list[str]:
        """What psql prints for a statement."""
        command = [
            str(self.bin / "psql"),
            "-h",
            str(self.folder),
            "-p",
            str(self.port),
            "-U",
            USER,
            "-Atc",
            statement,
            "postgres",
        ]
        env = {**os.environ, "PGPASSWORD": self.password.read_text().strip()}
        return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout.split()

    def end(self) -> None:
        """Ends it and forgets everything."""
        if self.process.poll() is None:
            self.stop()
        shutil.rmtree(self.folder)
