"""Explore: the server's manners, the page without a server, and both in a real browser.

The browser is Debian's Chromium driven by playwright; where either is missing its tests skip.
"""

import base64
import csv
import http.client
import json
import re
import shutil
import threading
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest
from explored import CONFIG, stored

import sweep
from sweep import evaluations, explorables, explorer
from sweep.errors import SweepError
from sweep.spec import Spec

CHROMIUM = shutil.which("chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return stored(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="module")
def ds(path):
    return sweep.open_store(path)


@pytest.fixture(scope="module")
def server(path):
    server = explorer.Server(path, 0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def get(server, path, host=None, method="GET", **headers):
    """Status, headers and body of one request."""
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=60)
    connection.request(method, path, headers=headers if host is None else {"Host": host, **headers})
    answer = connection.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read().decode()
    connection.close()
    return found


def asked(server, question, **words):
    status, _, body = get(server, f"/{question}?{urlencode(words)}")
    return status, json.loads(body)


# -- the server's manners ----------------------------------------------------------------------------------------------------


def test_it_listens_on_this_machine_alone(server):
    assert server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize("host, status", [(None, 200), ("localhost:1234", 200), ("localhost", 200), ("[::1]:80", 200),
                                          ("evil.example", 403), ("evil.example:8400", 403), ("127.0.0.1.evil.example", 403), ("", 403)])  # fmt: skip
def test_only_names_of_this_machine_are_answered(server, host, status):
    assert get(server, "/", host)[0] == status


@pytest.mark.parametrize("words, said", [
    ({"x": "tpp", "y": "tp"}, "x: 'tpp' is not in this dataset. Did you mean 'tp'?"),
    ({"x": "tp", "y": "tp"}, "x and y: both stand on tp"),
    ({"color": "mfuu"}, "color: 'mfuu'"),
    ({"at.tp": "3", "x": "link_gbps", "y": "model"}, "at: tp has no 3. The nearest are 1 and 2."),
    ({"at.nothing": "3"}, "at: 'nothing' is not an axis here"),
    ({"at.link_gbps": "fast", "x": "tp", "y": "model"}, "is no port speed"),
    ({"where": "__import__('os')"}, "constraint:"),
    ({"where": "tp <"}, "constraint:"),
    ({"allow": "everything"}, "allow: 'everything' is not a reason"),
])  # fmt: skip
def test_what_cannot_be_seen_is_one_line(server, words, said):
    status, answer = asked(server, "slice", **words)
    assert status == 400 and said in answer["error"] and "\n" not in answer["error"]


@pytest.mark.parametrize("address", ["/../pyproject.toml", "/page.css", "/%2e%2e/etc/passwd", "/__init__", "/view", "/page/page.js"])
def test_no_path_is_a_file(server, address):
    status, _, body = get(server, address)
    assert status == 404 and set(json.loads(body)) == {"error"}


def test_only_its_own_page_may_ask(server):
    assert get(server, "/slice", **{"Sec-Fetch-Site": "same-origin"})[0] == 200
    assert get(server, "/slice", **{"Sec-Fetch-Site": "same-site"})[0] == get(server, "/slice", **{"Sec-Fetch-Site": "cross-site"})[0] == 403
    assert get(server, "/?x=tp", **{"Sec-Fetch-Site": "cross-site"})[0] == 200  # an address that someone sent


def test_only_get_is_answered(server):
    assert get(server, "/slice", method="POST")[0] == 501


def test_the_page_holds_everything(server):
    status, headers, body = get(server, "/")
    assert status == 200 and headers["X-Frame-Options"] == "DENY" and headers["Cache-Control"] == "no-store"
    assert "{{" not in body and "<h1>Explored &lt;b&gt;&amp;</h1>" in body
    assert fetched(body) == set()


def fetched(body):
    """Addresses of other machines in a page, the name of SVG's namespace aside."""
    return set(re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}[^\s\"'`]*", body)) - {"http://www.w3.org/2000/svg"}


def test_questions_answer(server):
    words = {"x": "link_gbps", "y": "tp", "color": "mfu", "pick": "2,1", "at.model": "llama-3-8b"}
    status, point = asked(server, "point", **words)
    assert status == 200 and {row["name"] for row in point["outputs"]} == {*CONFIG["outputs"], "status"}
    assert "model=llama-3-8b" in point["typed"] and "tp=2" in point["typed"] and "link_gbps=400" in point["typed"]
    assert asked(server, "timeline", **words)[1]["end"] > 0
    assert len(asked(server, "alternatives", **words)[1]["rows"]) > 2
    sections = asked(server, "explanation", **words)[1]["sections"]
    assert len(sections) > 5 and any(item["kind"] == "table" for section in sections for item in section["items"])
    assert asked(server, "point", **{**words, "pick": "9,9"})[0] == 400


# -- without a server --------------------------------------------------------------------------------------------------------


def test_static_holds_the_slice(path, tmp_path, ds):
    written = explorer.write_static(path, tmp_path / "page", {"model": "llama-3-8b"}, {"x": "link_gbps", "y": "tp", "color": "mfu", "where": "tp > 1"}, ["mfu", "exposed_fraction"])
    body = written.read_text()
    assert fetched(body) == set() and "connect-src 'none'" in body
    about = json.loads(re.search(r'id="about">(.*?)</script>', body, re.DOTALL)[1])
    stored = about["arrays"]["variables"]["mfu"]
    shape = [len(axis["values"]) for axis in about["axes"] if axis["name"] in stored["dims"]]
    values = np.frombuffer(base64.b64decode(stored["data"]), "<f4").reshape(shape)
    np.testing.assert_array_equal(values, ds.mfu.sel(model="llama-3-8b").transpose(*stored["dims"]).values)
    assert about["notes"] == ["model llama-3-8b", "looked at: tp > 1"] and about["typed"] == "sweep explain model=llama-3-8b dp=64"


def test_static_adds_ports_where_an_output_asks_for_them():
    one = Spec.from_dict({"axes": {"tp": [1, 8], "micro_batch": [1, 2]}, "fixed": {"model": "llama-3-8b", "accelerator": "h100", "dp": 64}})
    ds = evaluations.evaluate_spec(one)
    found = explorables.slice_of(ds, outputs=["mfu", "required_link_gbps"])
    assert 400.0 in found.link_gbps.values and "link_gbps" in found.mfu.dims and "link_gbps" not in found.required_link_gbps.dims
    np.testing.assert_allclose(found.mfu.sel(link_gbps=400), ds.mfu, rtol=1e-12)
    assert "link_gbps" not in explorables.slice_of(ds, outputs=["required_link_gbps"]).dims


def test_static_says_what_does_not_fit(path, tmp_path, monkeypatch):
    monkeypatch.setattr(explorables, "LARGEST", 100)
    with pytest.raises(SweepError, match="a page takes 0. Fix axes, such as --at"):
        explorer.write_static(path, tmp_path)


# -- a real browser ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("no chromium here: apt-get install chromium")
    api = pytest.importorskip("playwright.sync_api", reason="no playwright here: pip install playwright")
    with api.sync_playwright() as playwright:
        profile = tmp_path_factory.mktemp("profile")
        context = playwright.chromium.launch_persistent_context(str(profile), executable_path=CHROMIUM, headless=True, args=FLAGS, accept_downloads=True)
        yield context
        context.close()


@pytest.fixture
def page(browser):
    """A page that fails the test on any error of its own, and on any request that leaves this machine."""
    page, wrong = browser.new_page(), []
    page.set_default_timeout(30000)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda line: wrong.append(line.text) if "Content Security" in line.text else None)
    page.on("request", lambda request: None if re.match(r"(http://127\.0\.0\.1:|file:|blob:|data:)", request.url) else wrong.append(request.url))
    yield page
    page.close()
    assert wrong == []


def show(page, address, width=1280, height=900):
    page.set_viewport_size({"width": width, "height": height})
    page.goto(address)
    settled(page)


def settled(page):
    """Wait until the last question is answered and drawn."""
    page.wait_for_function("() => slice !== null && pending === null && !wanted && document.querySelector('#figure svg')")


def click_middle(page, fraction=(0.5, 0.4)):
    box = page.locator("#figure").bounding_box()
    page.mouse.click(box["x"] + fraction[0] * box["width"], box["y"] + fraction[1] * box["height"])


def test_load_and_choose(page, server):
    show(page, server.address)
    assert page.title() == "Explored <b>&" and "144 points" in page.inner_text("#subtitle").replace(",", "")
    page.select_option("#color", "exposed_fraction")
    page.select_option("#x", "link_gbps")
    page.select_option("#y", "tp")
    settled(page)
    assert "exposed communication" in page.get_attribute("#figure", "aria-label")
    ticks = page.locator("#figure svg text").all_text_contents()
    assert {"100", "200", "400", "800"} <= set(ticks)
    page.select_option("#y", "link_gbps")  # they change places
    settled(page)
    assert page.input_value("#x") == "tp" and page.input_value("#y") == "link_gbps" and page.is_hidden("#error")
    page.select_option("#y", "")
    page.select_option("#color", "bottleneck")
    settled(page)
    assert page.locator("#figure svg").count() == 1


def test_drag_the_port(page, server):
    show(page, f"{server.address}?x=tp&y=micro_batch&color=exposed_fraction&at.link_gbps=400")
    assert "Read from the store" in page.inner_text("#caption")
    box = page.locator("#at-link_gbps").bounding_box()
    before = page.evaluate("[...slice.values]")
    page.mouse.move(box["x"] + box["width"] * 0.57, box["y"] + box["height"] / 2)
    page.mouse.down()
    for step in range(8):
        page.mouse.move(box["x"] + box["width"] * (0.5 - 0.03 * step), box["y"] + box["height"] / 2)
    page.mouse.up()
    settled(page)
    assert "Computed by the kernels" in page.inner_text("#caption")
    port, after = page.evaluate("[slice.link, [...slice.values]]")
    assert 50 < port < 300 and f"at.link_gbps={port:g}" in page.url
    assert sum(after[:2]) > sum(before[:2])
    page.select_option("#color", "required_link_gbps")
    settled(page)
    page.focus("#at-link_gbps")
    page.keyboard.press("ArrowRight")
    settled(page)
    assert "The port does not move this quantity" in page.inner_text("#caption")
    fresh = asked(server, "slice", x="tp", y="micro_batch", color="exposed_fraction", **{"at.link_gbps": repr(port)})[1]
    np.testing.assert_array_equal(np.float32(after), np.frombuffer(base64.b64decode(fresh["values"]), "<f4"))


def test_slider_and_constraint(page, server):
    show(page, f"{server.address}?x=link_gbps&y=tp&color=mfu")
    page.focus("#at-micro_batch")
    page.keyboard.press("End")
    settled(page)
    assert "at.micro_batch=4" in page.url and "micro batch 4" in page.inner_text("#caption") and "Hatched" in page.inner_text("#caption")
    assert page.evaluate("document.activeElement.id") == "at-micro_batch"
    page.fill("#where", "tp * 2 >= 16")
    page.press("#where", "Enter")
    settled(page)
    assert page.evaluate("[...slice.counted]") == [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1]
    page.fill("#where", "tpp > 1")
    page.press("#where", "Enter")
    page.wait_for_selector("#error:visible")
    assert page.inner_text("#error") == "constraint: 'tpp' is not known here. Did you mean 'pp', 'tp' or 'vpp'?"
    page.fill("#where", "")
    page.press("#where", "Enter")
    page.wait_for_selector("#error", state="hidden")


def test_click_opens_a_point_and_the_address_holds_it(page, server):
    show(page, f"{server.address}?x=link_gbps&y=tp&color=mfu&at.model=llama-3-8b")
    click_middle(page)
    page.wait_for_selector("aside details")
    said = page.inner_text("aside")
    for part in ("The step in time", "Other layouts", "Worked, line by line", "sweep explain model=llama-3-8b", "This point is marked"):
        assert part in said
    assert page.locator("aside svg rect").count() > 5 and page.locator("aside tr.here").count() == 1
    address, reading = page.url, page.inner_text("#reading")
    assert "pick=" in address
    show(page, address)
    page.wait_for_selector("aside details")
    assert page.inner_text("#reading") == reading and page.input_value("#at-model") == "llama-3-8b"


def test_downloads(page, server, tmp_path, ds):
    show(page, f"{server.address}?x=link_gbps&y=tp&color=mfu&at.model=llama-3-8b&at.accelerator=a100&at.micro_batch=2")
    found = {}
    for kind in ("svg", "png", "csv"):
        with page.expect_download() as download:
            page.click(f"#save-{kind}")
        found[kind] = tmp_path / download.value.suggested_filename
        download.value.save_as(found[kind])
    assert found["csv"].name == "explored-b-mfu.csv"
    svg = found["svg"].read_text()
    assert svg.startswith("<svg") and "model FLOP utilisation" in svg and "llama-3-8b" in svg
    assert found["png"].read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and found["png"].stat().st_size > 10000
    rows = list(csv.DictReader(found["csv"].read_text().splitlines()))
    assert len(rows) == 12 and rows[0]["model"] == "llama-3-8b" and rows[0]["status"] in ("ok", "memory")
    for row in rows:
        point = ds.mfu.sel(model=row["model"], accelerator=row["accelerator"], tp=int(row["tp"]), micro_batch=float(row["micro_batch"]), link_gbps=float(row["link_gbps"]))
        assert float(row["mfu"]) == pytest.approx(float(point), rel=1e-6)


def test_by_keyboard_alone(page, server):
    show(page, f"{server.address}?x=link_gbps&y=tp&color=mfu")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    page.focus("#figure")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    for key in ("ArrowRight", "Home", "ArrowUp", "ArrowRight"):
        page.keyboard.press(key)
    assert "200 Gb/s" in page.inner_text("#reading") and "tensor-parallel size 8" in page.inner_text("#reading")
    page.keyboard.press("Enter")
    page.wait_for_selector("aside table")
    assert "pick=1,2" in page.url.replace("%2C", ",") and page.evaluate("document.activeElement.id") == "details"
    page.focus("#figure")
    page.keyboard.press("Escape")
    assert "pick=" not in page.url
    unnamed = page.evaluate("[...document.querySelectorAll('input, select, button')].filter((one) => !(one.labels && one.labels.length) && !one.textContent.trim()).map((one) => one.id)")
    assert unnamed == []


def test_phone(page, server):
    show(page, f"{server.address}?x=link_gbps&y=model&color=required_link_gbps", 360, 740)
    click_middle(page, (0.6, 0.3))
    page.wait_for_selector("aside details")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate("document.querySelector('#figure svg').getBoundingClientRect().right") <= 360
    assert page.evaluate("Math.min(...[...document.querySelectorAll('select, button')].filter((b) => b.offsetHeight).map((b) => b.offsetHeight))") >= 36
    assert page.is_visible("#reading a.down")


def test_static_page_works_from_a_file(page, path, tmp_path, ds):
    written = explorer.write_static(path, tmp_path, {"accelerator": "h100"}, {"x": "link_gbps", "y": "tp", "color": "mfu"})
    show(page, Path(written).as_uri())
    page.focus("#at-micro_batch")
    page.keyboard.press("End")
    page.select_option("#at-model", "llama-3-8b")
    settled(page)
    here = ds.mfu.sel(accelerator="h100", model="llama-3-8b", micro_batch=4).transpose("tp", "link_gbps").values
    np.testing.assert_array_equal(np.float32([np.nan if v is None else v for v in page.evaluate("[...slice.values].map((v) => Number.isNaN(v) ? null : v)")]), here.ravel())
    click_middle(page, (0.6, 0.2))
    page.wait_for_selector("aside code")
    assert page.inner_text("aside code").startswith("sweep explain accelerator=h100 dp=64 model=llama-3-8b tp=")
    page.select_option("#x", "tokens_per_domain")
    settled(page)
    assert page.is_hidden("#error")


# -- the command line --------------------------------------------------------------------------------------------------------


def test_verb(path, tmp_path, capsys, monkeypatch):
    from sweep import cli

    def run(*words):
        with pytest.raises(SystemExit) as ended:
            cli.main(["explore", *map(str, words)])
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    code, out, _ = run(path, "--static", tmp_path, "--at", "model=llama-3-8b", "--columns", "mfu, bottleneck", "--x", "tp")
    assert code == 0 and out.strip() == str(tmp_path / "index.html") and Path(out.strip()).is_file()
    code, _, err = run(path, "--static", tmp_path, "--at", "model=llama-3-9b")
    assert code == 2 and "has no 'llama-3-9b'" in err and err.count("\n") == 1
    monkeypatch.setattr(explorer.Server, "serve_forever", lambda server: (_ for _ in ()).throw(KeyboardInterrupt))
    code, _, err = run(path, "--no-browser", "--x", "tp", "--at", "model=llama-3-8b", "--port", 8477)
    assert code == 0 and "http://127.0.0.1:" in err and "at.model=llama-3-8b" in err and "stopped." in err
