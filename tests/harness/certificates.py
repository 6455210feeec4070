"""Certificates, made with openssl as operators make them."""

from __future__ import annotations

import subprocess
from pathlib import Path

RSA = ("-newkey", "rsa:2048", "-nodes")
EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
HERE = "subjectAltName=IP:127.0.0.1,DNS:localhost"


def openssl(*arguments: str | Path, stdin: bytes = b"") -> str:
    """What a command of openssl prints."""
    command = ["openssl", *map(str, arguments)]
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


class Certificate:
    """A certificate and its key."""

    def __init__(self, home: Path, name: str) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.cert, self.key = home / f"{name}.pem", home / f"{name}.key"

    @property
    def both(self) -> Path:
        """The two in one file."""
        both = self.cert.with_suffix(".both")
        both.write_text(self.cert.read_text() + self.key.read_text())
        return both

    @property
    def curl(self) -> list[str | Path]:
        """The flags with which curl shows it."""
        return ["--cert", self.cert, "--key", self.key]


def self_signed(home: Path, *more: str) -> Certificate:
    """A certificate for this machine that no authority has signed, with an RSA key."""
    made = Certificate(home, "self-signed")
    names = ("-subj", "/CN=localhost", "-addext", HERE, *more)
    openssl("req", "-x509", *RSA, "-days", "2", *names, "-keyout", made.key, "-out", made.cert)
    return made


class Authority(Certificate):
    """A certificate that signs others."""

    def __init__(self, home: Path, name: str = "authority") -> None:
        super().__init__(home, name)
        self.home = home
        subject = ("-subj", f"/O=Example/CN={name}")
        openssl("req", "-x509", *EC, "-days", "2", *subject, "-keyout", self.key, "-out", self.cert)

    def issue(self, name: str, *, valid: bool = True) -> Certificate:
        """A certificate for `/O=Example/CN={name}` on this machine, for servers and for clients."""
        made = Certificate(self.home, f"{self.cert.stem}-{name}")
        request, index = self.home / "request.pem", self.home / "index.txt"
        subject = ("-subj", f"/O=Example/CN={name}")
        openssl("req", "-new", *EC, *subject, "-addext", HERE, "-keyout", made.key, "-out", request)
        index.write_text("")
        config = self.home / "ca.cnf"
        config.write_text(
            f"[ca]\ndatabase = {index}\nnew_certs_dir = {self.home}\nrand_serial = yes\n"
            "default_md = sha256\npolicy = any\ncopy_extensions = copy\n"
            "[any]\norganizationName = optional\ncommonName = supplied\n"
        )
        dates = ("-days", "2") if valid else ("-startdate", "20200101000000Z", "-enddate", "20200102000000Z")
        signed = ("-in", request, "-out", made.cert, "-cert", self.cert, "-keyfile", self.key)
        openssl("ca", "-batch", "-name", "ca", "-config", config, "-notext", "-preserveDN", *dates, *signed)
        return made
