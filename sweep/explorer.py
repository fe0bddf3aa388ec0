"""``sweep explore``: a store in the browser, from a server on this machine alone, or as one file without any.

The page is ours, a thousand lines beside this file in ``page/``, and the server is the standard library's.  Panel with
HoloViews would be the usual choice.  It brings 25 packages and starts in seconds; its static form needs a state saved for
every position of every slider, or Python in the browser from a CDN; and what this page is for (contours at port speeds as in
our maps, a step's timeline, a click that asks the kernels, an address that holds the view) would be our own code inside it
all the same.  Here one page serves both forms, without a dependency and without the network.

    /  the page     /slice  /point  /explanation  /timeline  /alternatives   plain JSON, all of the words of an address

It answers to the names of this machine alone (a page elsewhere cannot point its own name at it), to questions of its own
page alone, to GET alone, and reads nothing but the store.
"""

import base64
import html
import json
import threading
import time
import webbrowser
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import numpy as np

from . import explorables, tables, views
from .designs import Designs
from .errors import SweepError

PORT = 8400
HOSTS = ("127.0.0.1", "localhost", "[::1]")
PARTS = ("figure.js", "details.js", "source.js", "page.js")
FETCHES = {True: "'self'", False: "'none'"}  # what the page may connect to: its server, or nothing


def explore(store, port=PORT, words=None, ready=None, browser=True):
    """Serve ``store`` on 127.0.0.1 until interrupted.

    ``words`` are those of the first view's address; ``ready`` is called with the address once it answers.  Where ``port``
    is taken another is chosen.  Raises SweepError where the store or the view cannot be read.
    """
    server = Server(store, port)
    try:
        address = server.address + ("?" + urlencode(server.explorer.view(words or {}).words()) if words else "")
        if ready:
            ready(address)
        if browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        server.serve_forever()
    finally:
        server.server_close()


def write_static(store, folder, at=None, words=None, outputs=None, link_labels=29):
    """Write ``folder``/index.html, the page with the arrays of a slice inside, as a paper's supplement; returns its path.

    ``at``: labels of axes to be fixed, so that what is left fits.  ``words``: those of the first view's address; a ``where``
    among them is applied once and for all.  Where the port is no axis, the kernels add one of ``link_labels`` ports.  Raises
    SweepError where it does not fit.
    """
    words = dict(words or {})
    where = words.pop("where", "")
    whole = explorables.opened(store)
    ds = explorables.slice_of(whole, at, outputs, where, link_labels)
    view = views.View.of(ds, words)
    views.plane(ds, view)
    about = explorables.about(ds, view) | {"arrays": explorables.arrays(ds)}
    shared = explorables.common(whole, at)
    if shared is not None:
        about["typed"] = explorables.typed(shared)
    about["notes"] = [f"{name} {label}" for name, label in (at or {}).items()] + ([f"looked at: {where}"] if where else [])
    path = Path(folder) / "index.html"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(about, live=False), encoding="utf-8")
    except OSError as error:
        raise SweepError(f"{path}: cannot be written ({error.strerror}).") from None
    return path


def page(about, live):
    """The page as one text: markup, style, code and ``about``, all inside; it may fetch from its own server if ``live``."""
    parts = {
        "title": html.escape(about["title"]),
        "connect": FETCHES[live],
        "style": _part("page.css"),
        "code": "\n".join(_part(name) for name in PARTS),
        "about": json.dumps(tables.plain(about), allow_nan=False).replace("<", "\\u003c"),
    }
    text = _part("page.html")
    for name, part in parts.items():
        text = text.replace("{{" + name + "}}", part)
    return text


class Explorer:
    """An open store and what the page asks of it; every answer is a mapping of plain values."""

    def __init__(self, store):
        self.ds = explorables.opened(store)
        try:
            self.designs, self.why_not = Designs(self.ds), ""
        except SweepError as problem:
            self.designs, self.why_not = None, str(problem)

    def view(self, words):
        return views.View.of(self.ds, words)

    def page(self):
        return page(explorables.about(self.ds, self.view({}), self.designs, self.why_not), live=True)

    def slice(self, words):
        began = time.perf_counter()
        plane = views.plane(self.ds, self.view(words), self.designs)
        return {
            "x": _side(plane.x),
            "y": _side(plane.y) if plane.y.dim else None,
            "values": _packed(plane.values, "<f4"),
            "counted": _packed(plane.counted, "u1"),
            "status": None if plane.status is None else _packed(plane.status, "u1"),
            "link": plane.link,
            "seconds": time.perf_counter() - began,
        }

    def point(self, words):
        picks, link = self._picked(words)
        shown, places = (self.ds, picks) if link is None else (self.designs.slice(picks, list(self.ds.data_vars), link), {})
        topic = explorables.topic_of(self.view(words).color)
        typed = "" if self.designs is None else explorables.typed(self.designs.words(picks, link), topic)
        return {"outputs": explorables.outputs_at(shown, places), "link": link, "topic": topic, "typed": typed}

    def explanation(self, words):
        from . import explanations, moneysheets

        picks, link = self._picked(words)
        topic = explorables.topic_of(self.view(words).color)
        if topic != "step":
            return explorables.worked(moneysheets.about(topic, **self._asked().words(picks, link)))
        return explorables.worked(explanations.Explanation(self._asked().point(picks, link)).worksheet)

    def timeline(self, words):
        from . import timelines

        picks, link = self._picked(words)
        return timelines.timeline(self._asked().point(picks, link))._asdict()

    def alternatives(self, words):
        from . import alternatives

        picks, link = self._picked(words)
        return {"rows": alternatives.alternatives(self._asked().point(picks, link))}

    def _asked(self):
        if self.designs is None:
            raise SweepError(self.why_not)
        return self.designs

    def _picked(self, words):
        """A position on every axis, and the port between labels: ``pick`` is the row and column on the figure."""
        view = self.view(words)
        plane = views.plane(self.ds, view, self.designs)
        try:
            column, row = (int(number) for number in words.get("pick", "").split(","))
            plane.values[row, column]
        except (ValueError, IndexError):
            raise SweepError("pick: write two numbers, column and row of a point on the figure, such as pick=0,0.") from None
        picks = {**plane.picks, plane.x.dim: column}
        if plane.y.dim:
            picks[plane.y.dim] = row
        if self.designs is not None and self.designs.over:
            picks = self.designs.winner(picks, view.color)
        return picks, plane.link


class Server(ThreadingHTTPServer):
    """An :class:`Explorer` on 127.0.0.1; ``address`` is where."""

    daemon_threads = True

    def __init__(self, store, port=PORT):
        self.explorer = Explorer(store)
        try:
            super().__init__(("127.0.0.1", port), Handler)
        except OSError:  # taken by another, or not ours to take
            super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server_address[1]}/"


class Handler(BaseHTTPRequestHandler):
    """GET alone, of the page and its questions; no path is ever a file's."""

    QUESTIONS = ("slice", "point", "explanation", "timeline", "alternatives")
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "sweep", ""
    disable_nagle_algorithm, wbufsize = True, -1  # an answer leaves whole and at once, not 40 ms later

    def do_GET(self):
        name, _, port = self.headers.get("Host", "").rpartition(":")
        if (name if port.isdigit() else self.headers.get("Host", "")) not in HOSTS:
            return self._say(403, {"error": "this server answers to 127.0.0.1 and localhost alone."})
        url = urlsplit(self.path)
        question = url.path.strip("/")
        if question and self.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
            return self._say(403, {"error": "this server answers to its own page alone."})
        try:
            if not question:
                return self._send(200, self.server.explorer.page().encode(), "text/html; charset=utf-8")
            if question not in self.QUESTIONS:
                return self._say(404, {"error": f"there is no {url.path[:80]} here."})
            words = dict(parse_qsl(url.query, keep_blank_values=True))
            self._say(200, getattr(self.server.explorer, question)(words))
        except SweepError as error:
            self._say(400, {"error": " ".join(str(error).split())})
        except (BrokenPipeError, ConnectionResetError):  # the page has asked for something newer
            self.close_connection = True
        except Exception as error:
            self._say(500, {"error": f"our fault: {type(error).__name__}: {error}"})

    def _say(self, status, answer):
        self._send(status, json.dumps(tables.plain(answer), allow_nan=False).encode(), "application/json")

    def _send(self, status, body, kind):
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": len(body), "Cache-Control": "no-store",
                            "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer"}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """No line for each request."""


def _side(side):
    return {"name": side.name, "dim": side.dim, "values": side.values.tolist()}


def _packed(values, dtype):
    return base64.b64encode(np.ascontiguousarray(values, dtype).tobytes()).decode()


@cache
def _part(name):
    return (Path(__file__).parent / "page" / name).read_text(encoding="utf-8")
