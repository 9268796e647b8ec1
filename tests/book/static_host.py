"""A plain static host for tests: gzip like a real one, below any path, and it counts the bytes."""

from __future__ import annotations

import gzip
import mimetypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMPRESSED = (".html", ".css", ".js", ".json", ".svg", ".py", ".wasm", ".xml", ".txt", ".ipynb")
mimetypes.add_type("application/wasm", ".wasm")
mimetypes.add_type("font/woff2", ".woff2")


@cache
def _body(path: Path, stamp: float) -> tuple[bytes, bool]:
    data = path.read_bytes()
    if path.suffix in COMPRESSED:
        return gzip.compress(data, 6), True
    return data, False


class Site:
    """The address of a served folder, and what was sent since the last `forget`."""

    def __init__(self, port: int, base: str) -> None:
        self.address = f"http://127.0.0.1:{port}{base}"
        self.sent: list[tuple[str, int]] = []

    @property
    def bytes_sent(self) -> int:
        return sum(size for _, size in self.sent)

    def forget(self) -> None:
        self.sent.clear()


@contextmanager
def serve(folder: Path, base: str = "/") -> Iterator[Site]:
    """Serve `folder` below the path `base` until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            target = folder / path.removeprefix(base) if path.startswith(base) else None
            if target is not None and target.is_dir():
                target /= "index.html"
            status = 200
            if target is None or not target.is_file():
                target, status = folder / "404.html", 404
            body, zipped = _body(target, target.stat().st_mtime)
            self.send_response(status)
            self.send_header("Content-Type", mimetypes.guess_type(target.name)[0] or "text/plain")
            self.send_header("Content-Length", str(len(body)))
            if zipped:
                self.send_header("Content-Encoding", "gzip")
            self.end_headers()
            self.wfile.write(body)
            site.sent.append((path, len(body)))

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    site = Site(server.server_port, base)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
