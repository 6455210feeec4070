"""A cloud of one machine: buckets that are listed and read with a token, and the servers that give tokens to machines.

Buckets are answered as S3, Google and Azure do. The addresses of the metadata servers are fixed and of no machine here,
so the server under test reaches them through a proxy, which this is as well."""

from __future__ import annotations

import http.server
import json
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

ROLE, KEY, SECRET, TOKEN = "role-of-the-machine", "key-of-the-machine", "secret-of-the-machine", "token-of-the-machine"
IMDS_TOKEN = "token-of-the-metadata"
FAR = "2099-01-01T00:00:00Z"
KEYS = {"AccessKeyId": KEY, "SecretAccessKey": SECRET, "Token": TOKEN, "Expiration": FAR, "Code": "Success"}
ASSUMED = f"""<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>
<AccessKeyId>{KEY}</AccessKeyId><SecretAccessKey>{SECRET}</SecretAccessKey><SessionToken>{TOKEN}</SessionToken>
<Expiration>{FAR}</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"""
MODIFIED = "2025-01-01T00:00:00.000Z"


@dataclass
class Cloud:
    """The objects by bucket and name, and who was asked for tokens."""

    objects: dict[str, bytes] = field(default_factory=dict)
    """By `bucket/name`."""
    told: list[str] = field(default_factory=list)
    """Host and path of every request for a token."""
    base: str = ""

    def put(self, place: str, files: dict[str, bytes]) -> None:
        """Puts files below `bucket/folder`."""
        self.objects.update({f"{place}/{name}": content for name, content in files.items()})

    @property
    def proxied(self) -> dict[str, str]:
        """The variables of a machine whose metadata servers are here."""
        return {"HTTP_PROXY": self.base, "http_proxy": self.base, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers buckets to whoever has the token, and tells the token to machines."""

    protocol_version = "HTTP/1.1"
    cloud: Cloud

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def do_PUT(self) -> None:
        """The first step of the second version of Amazon's metadata."""
        self.do_GET()

    def do_POST(self) -> None:
        """Amazon's token service."""
        self.do_GET()

    def do_GET(self) -> None:
        """An object, a list of objects, or a token."""
        length = int(self.headers.get("Content-Length") or 0)
        sent = self.rfile.read(length).decode()
        asked = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(asked.query)) | dict(urllib.parse.parse_qsl(sent))
        told = self.token(f"{asked.hostname or ''}{asked.path}", query)
        if told is not None:
            self.cloud.told.append(f"{asked.hostname or ''}{asked.path}")
            return self.reply(*told)
        if not self.is_known():
            return self.reply(403, b"<Error><Code>AccessDenied</Code></Error>")
        name = urllib.parse.unquote(asked.path).strip("/")
        if "list-type" in query or query.get("comp") == "list":
            return self.listed(name, query)
        if name not in self.cloud.objects:
            return self.reply(404, b"<Error><Code>NoSuchKey</Code></Error>")
        return self.reply(200, self.cloud.objects[name])

    def token(self, place: str, query: dict[str, str]) -> tuple[int, bytes] | None:
        """What a server of tokens answers; None if nothing of the kind is there."""
        headers = self.headers
        imds = "169.254.169.254/latest/"
        if place == f"{imds}api/token" and self.command == "PUT":
            return 200, IMDS_TOKEN.encode()
        if place.startswith(f"{imds}meta-data/iam/security-credentials/"):
            if headers.get("X-aws-ec2-metadata-token") != IMDS_TOKEN:
                return 401, b""
            return 200, json.dumps(KEYS).encode() if place.endswith(ROLE) else ROLE.encode()
        if place == "169.254.170.2/v2/credentials/of-the-task":
            return 200, json.dumps(KEYS | {"RoleArn": ROLE}).encode()
        if place == "/pod-identity":
            return (200, json.dumps(KEYS).encode()) if headers.get("Authorization") == "pod" else (401, b"")
        if query.get("Action") == "AssumeRoleWithWebIdentity":
            known = query.get("WebIdentityToken") == "jwt" and query.get("RoleArn") == ROLE
            return (200, ASSUMED.encode()) if known else (403, b"")
        google = "metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/token"
        if place == google and headers.get("Metadata-Flavor") == "Google":
            return 200, json.dumps({"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"}).encode()
        if place == "169.254.169.254/metadata/identity/oauth2/token" and headers.get("Metadata") == "true":
            token = {"access_token": TOKEN, "expires_on": "4070908800", "expires_in": "3600", "token_type": "Bearer"}
            return 200, json.dumps(token | {"resource": query["resource"]}).encode()
        return None

    def is_known(self) -> bool:
        """Whether the request brings what the machine was told."""
        authorization = self.headers.get("Authorization", "")
        signed = f"Credential={KEY}/" in authorization and self.headers.get("x-amz-security-token") == TOKEN
        return signed or authorization == f"Bearer {TOKEN}"

    def listed(self, bucket: str, query: dict[str, str]) -> None:
        """Two objects at a time, so that whoever wants all has to ask for more."""
        azure = query.get("comp") == "list"
        begin = f"{bucket}/{query.get('prefix', '')}"
        found = sorted(name for name in self.cloud.objects if name.startswith(begin))
        at = int(query.get("continuation-token") or query.get("marker") or 0)
        page, more = found[at : at + 2], at + 2 < len(found)
        rows = [(escape(name.removeprefix(f"{bucket}/")), len(self.cloud.objects[name])) for name in page]
        self.reply(200, (azure_page if azure else s3_page)(rows, str(at + 2) if more else "").encode())

    def reply(self, status: int, body: bytes) -> None:
        """The whole answer."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Wed, 01 Jan 2025 00:00:00 GMT")
        self.send_header("x-ms-blob-type", "BlockBlob")
        self.end_headers()
        self.wfile.write(body)


def s3_page(rows: list[tuple[str, int]], then: str) -> str:
    """A page of a list as S3 and Google have it."""
    contents = "".join(
        f"<Contents><Key>{name}</Key><Size>{size}</Size><LastModified>{MODIFIED}</LastModified><ETag>1</ETag></Contents>"
        for name, size in rows
    )
    after = f"<NextContinuationToken>{then}</NextContinuationToken>" if then else ""
    return f"<ListBucketResult>{contents}{after}</ListBucketResult>"


def azure_page(rows: list[tuple[str, int]], then: str) -> str:
    """A page of a list as Azure has it."""
    blobs = "".join(
        f"<Blob><Name>{name}</Name><Properties><Last-Modified>Wed, 01 Jan 2025 00:00:00 GMT</Last-Modified>"
        f"<Content-Length>{size}</Content-Length><Content-Type>x/y</Content-Type><Etag>1</Etag></Properties></Blob>"
        for name, size in rows
    )
    return f"<EnumerationResults><Blobs>{blobs}</Blobs><NextMarker>{then}</NextMarker></EnumerationResults>"


@contextmanager
def one_cloud() -> Iterator[Cloud]:
    """The cloud, for as long as the block lasts."""
    cloud = Cloud()
    handler = type("Bound", (Handler,), {"cloud": cloud})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    cloud.base = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield cloud
    server.shutdown()
    server.server_close()
