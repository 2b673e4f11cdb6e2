"""The page of a node: who may see what, what it says, and how it looks in headless Chromium."""

from __future__ import annotations

import json
import math
import re
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gossamer import Budget, algorithms, problems, topology
from gossamer.cli.commands import app
from gossamer.errors import ConfigurationError, PrivacyError
from gossamer.net.data.sources import from_iterable
from gossamer.net.directory import NodeDirectory
from gossamer.net.enrolment import try_network
from gossamer.net.node.agreement import prepared
from gossamer.net.node.spending import Cost, Spending
from gossamer.net.startup import about, launch
from gossamer.net.web import status
from gossamer.net.web.access import Certified, new_token, read_token
from gossamer.net.web.endpoint import _ROUTES, HEADERS, Endpoint
from gossamer.net.web.rows import CountedSource
from gossamer.net.web.status import About, meaning, status_of
from gossamer.net.web.status_board import Board, Plan
from gossamer.net.wire.certificates import VALID, certificate_for, certified
from gossamer.net.wire.zenoh_link import Files
from gossamer.privacy import Guarantee, Pure
from gossamer.privacy.guarantee import no_guarantee
from gossamer.problems import Logistic
from tests.chromium import MISSING, PROGRAM, Browser
from tests.networks import Silent

PROMISE = Guarantee("proven", losses=(Pure(1.0),), deltas=(0.0,), horizon=1000)
SITES = About("0a1b2c3d" * 4, "pd_ogd on ring(4)", ("north", "south", "west", "east"), ((0, 1), (0, 3), (1, 2), (2, 3)))
OWNER, METRICS = "o" * 43, "m" * 43
ROOT = Path(__file__).parent.parent


def a_board() -> Board:
    """Of a node in the middle of its run: two neighbours, one of them away, five rows of which two are of no use."""
    board = Board(Logistic(2), PROMISE, 0, logs=Silent())
    board.state = "running"
    board.set("start_time", time.time() - 4000)
    board.set("period", 1.0)
    board.set("certificate_end", time.time() + 200 * 86_400)
    board.intend(Plan(1.0, 1e-5, 1000, grows=True))
    board.set("epsilon_spent", 0.25)
    board.set("delta_spent", 1e-5)
    board.publish(250, np.float32([1, -2]))
    board.meet([1, 3])
    board.heard(1)
    board.connect([1])
    for exchange in (248, 249):
        board.exchanged(exchange, 0.01)
    rows = [([1, 2], 1), ([1, math.nan], 1), ([3, 4], 0), ([1], 0), ([5, 6], 1)]
    CountedSource(from_iterable(rows, Logistic(2), faults=board.rows.fault), board.rows).take(10)
    return board


@pytest.fixture
def board():
    return a_board()


@pytest.fixture(scope="module")
def papers(tmp_path_factory):
    """A certificate and its key, as a node has them."""
    folder = tmp_path_factory.mktemp("papers")
    for name, data in zip(("cert.pem", "cert.key"), certified("a page", ["127.0.0.1"]), strict=True):
        (folder / name).write_bytes(data)
    return Files(folder / "cert.pem", folder / "cert.key")


def asked(endpoint, path, token=None, scheme="http", context=None, **headers):
    """Status and text of an answer."""
    if token:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(f"{scheme}://127.0.0.1:{endpoint.port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


# Who may see what.


def test_what_each_token_is_good_for(board):
    endpoint = Endpoint(board, token=OWNER, metrics_token=METRICS)
    try:
        for path, route in _ROUTES.items():
            if route.method == "GET":
                found = [asked(endpoint, path, token)[0] for token in (None, "w" * 43, METRICS, OWNER)]
                good = {"page": [200] * 4, "everybody": [200] * 4, "metrics": [401, 401, 200, 200]}
                assert found == good.get(route.right, [401, 401, 401, 200]), path
        assert json.loads(asked(endpoint, "/healthz")[1]) == {"healthy": True}
        assert json.loads(asked(endpoint, "/healthz", METRICS)[1])["neighbours_connected"] == 1
        for wrong in (OWNER[:-1], OWNER + "o", "", "Bearer"):
            assert asked(endpoint, "/status", wrong)[0] == 401
        assert asked(endpoint, "/predict?token=" + OWNER)[0] == 401
    finally:
        endpoint.close()


def test_rows_are_on_the_owners_page_and_nowhere_else(board):
    """What was read and rejected says something about the data: no metric, no health, no decision has it."""
    endpoint = Endpoint(board)
    try:
        rows = json.loads(asked(endpoint, "/status")[1])["rows"]
        assert (rows["read"], rows["rejected"]) == (5, 2)
        assert sum(rows["reasons"].values()) == 2
        before = {path: asked(endpoint, path)[1] for path in ("/metrics", "/guarantee", "/decision")}
        board.rows.read += 1000
        assert {path: asked(endpoint, path)[1] for path in before} == before
        assert not re.search("rows_read|reject", "".join(before.values()))
    finally:
        endpoint.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7"])
def test_a_page_that_others_reach_needs_a_token_and_tls(board, papers, host):
    with pytest.raises(ConfigurationError, match=r"a token.*gossamer node token DIR"):
        Endpoint(board, host=host, certificate=papers)
    with pytest.raises(ConfigurationError, match="TLS"):
        Endpoint(board, host=host, token=OWNER)


def test_a_page_over_tls(board, papers):
    endpoint = Endpoint(board, host="0.0.0.0", token=OWNER, certificate=papers)
    trusting = ssl.create_default_context(cafile=str(papers.certificate))
    try:
        assert asked(endpoint, "/status", OWNER, "https", trusting)[0] == 200
        assert asked(endpoint, "/status", None, "https", trusting)[0] == 401
        assert "gossamer_page_certificate_end" in asked(endpoint, "/metrics", OWNER, "https", trusting)[1]
        with pytest.raises((OSError, urllib.error.URLError)):
            asked(endpoint, "/healthz")
    finally:
        endpoint.close()


def test_a_renewed_certificate_is_taken_and_a_broken_one_is_not(papers, tmp_path):
    for file in (papers.certificate, papers.key):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    files = Files(tmp_path / "cert.pem", tmp_path / "cert.key")
    tls = Certified(files)
    first, until = tls.context(), tls.until
    assert tls.context() is first
    files.certificate.write_bytes(b"half")
    assert tls.context() is first
    files.certificate.write_bytes(certificate_for(files.key.read_bytes(), "a page", ["127.0.0.1"], 2 * VALID))
    assert tls.context() is not first
    assert tls.until > until
    files.certificate.write_bytes(b"half")
    with pytest.raises(ConfigurationError, match="http_certificate"):
        Certified(files)


def test_what_other_sites_and_proxies_ask_is_refused(board):
    endpoint = Endpoint(board)
    ours = f"http://127.0.0.1:{endpoint.port}"
    try:
        for headers in ({"Origin": ours}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}):
            assert asked(endpoint, "/status", **headers)[0] == 200
        for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
            assert [asked(endpoint, path, **headers)[0] for path in ("/status", "/healthz", "/metrics")] == [403] * 3
        assert asked(endpoint, "/status", **{"X-Forwarded-For": "10.0.0.7"})[0] == 403
        assert asked(endpoint, "/", **{"Sec-Fetch-Site": "cross-site"})[0] == 200  # a link to the page, which is empty
    finally:
        endpoint.close()


def test_tokens_are_the_owners_to_read_and_hard_to_guess(tmp_path):
    file = tmp_path / "page.token"
    assert read_token(file) is None
    made = new_token(file)
    assert (read_token(file), file.stat().st_mode & 0o777) == (made, 0o600)
    file.chmod(0o640)
    with pytest.raises(PrivacyError, match="others may read"):
        read_token(file)
    file.chmod(0o600)
    for weak in ("secret", "", "ö" * 40, "a b" * 20):
        file.write_text(weak)
        with pytest.raises(ConfigurationError, match="32 characters"):
            read_token(file)


ALGORITHM = prepared(
    algorithms.pd_ogd(problems.Logistic(2), topology.ring(3), budget=Budget(1.0, 1e-6), clip=1.0, step=0.1)
)


def test_a_node_that_is_opened(tmp_path):
    """Refused without a token, before anything is sent; then with the node's own certificate."""
    node = try_network(tmp_path / "net", ALGORITHM, hosts=["127.0.0.1"] * 3, arrivals="public")[0]
    text = (node.path / "node.toml").read_text()
    (node.path / "node.toml").write_text(text.replace('http = ""', 'http = "0.0.0.0:8443"'))
    with pytest.raises(ConfigurationError, match="gossamer node token"):
        launch(node, node.settings(), ALGORITHM, data=[])
    said = CliRunner().invoke(app, ["node", "token", str(node.path)]).stdout
    owner = (node.path / "page.token").read_text().strip()
    assert f"https://127.0.0.1:8443/#token={owner}" in said.replace("\n", "")
    assert re.search(r"SHA-256ofitscertificate:([0-9A-F]{2}:){31}", re.sub(r"\s", "", said))
    assert CliRunner().invoke(app, ["node", "token", str(node.path), "--metrics"]).exit_code == 0
    assert read_token(node.path / "metrics.token") not in (None, owner)
    (node.path / "node.toml").write_text(text.replace('http = ""', 'http = "0.0.0.0:0"'))
    launch(node, node.settings(), ALGORITHM, data=[]).opened.close()
    half = text.replace('http_key = ""', 'http_key = "x"').replace('http = ""', 'http = "0.0.0.0:8443"')
    (node.path / "node.toml").write_text(half)
    with pytest.raises(ConfigurationError, match="or neither"):
        launch(node, node.settings(), ALGORITHM, data=[])


# What it says.


def test_the_graph_is_that_of_the_agreement(tmp_path):
    node = try_network(tmp_path / "net", ALGORITHM, hosts=["127.0.0.1"] * 3, arrivals="public")[0]
    found = about(NodeDirectory(node.path).agreement(), ALGORITHM)
    assert found.members == ("node-0", "node-1", "node-2")
    assert found.links == ((0, 1), (0, 2), (1, 2))


def alarms(board, known=SITES):
    return [one["told"] for one in status_of(board, known)["alarms"]]


def test_what_is_wrong_is_said(board, monkeypatch):
    board.heard(3)
    board.rows.rejected = 0
    assert alarms(board) == []
    now = time.time()
    monkeypatch.setattr(status.time, "time", lambda: now + 120)
    assert alarms(board) == [
        "No exchange for 2 minutes.",
        "south was not heard for 2 minutes.",
        "east was not heard for 2 minutes.",
    ]
    monkeypatch.setattr(status.time, "time", lambda: now)
    board.exchanged(950, 0.01)
    assert alarms(board) == ["49 exchanges are left."]
    board.state = "exhausted"
    board.set("certificate_end", now + 86_400 * 3.5)
    board.rows.rejected = 1
    assert alarms(board) == [
        "Nothing more may be spent: the node serves its last model.",
        "The certificate ends in 3 days.",
        "Up to 20 % of your rows cannot be used.",
    ]
    board.state = "stopped"
    assert alarms(board)[0] == "The node has stopped."


def test_what_epsilon_means_is_the_best_test_there_is():
    """Randomised response with epsilon 1 reaches it: e / (1 + e) of its answers are true."""
    words = meaning(ALGORITHM.guarantee, 0)
    assert f"{100 * math.e / (1 + math.e):.4f}"[:4] <= words.partition("at most ")[2][:4] <= "73.2"
    assert "one sample of one learner" in words
    huge = algorithms.pd_ogd(problems.Logistic(2), topology.ring(3), budget=Budget(1e4), clip=1.0, step=0.1)
    assert "at most 100 %" in meaning(huge.guarantee, 0)
    for unproven in (no_guarantee("an example"), PROMISE):  # the second is claimed, and nothing has checked it
        assert meaning(unproven, 0) == ""


def spending(budget=None, earlier=()):
    algorithm = algorithms.ldp_endless(
        problems.Logistic(2, feature_bound=1.0), topology.ring(3), budget=Budget(1.0, 1e-3), clip=1.0, horizon=100
    )
    return Spending(prepared(algorithm), 0, budget, earlier)


def test_the_plan_says_how_many_exchanges_the_budget_covers():
    """As many as are not refused, one by one; and what the page shows as spent then is within the budget."""
    once = Spending(ALGORITHM, 0).plan()
    assert (once.exchanges, once.grows) == (None, False)
    assert once.epsilon == pytest.approx(1.0, rel=1e-4)
    for budget, earlier in (
        (None, ()),
        (Budget(0.5, 1e-3), ()),
        (Budget(0.5, 1e-3), (Cost("s", "r", 0, Pure(0.2), 0.0, 0.0, "u"),)),
        (Budget(0.01, 1e-3), (Cost("s", "r", 0, Pure(0.2), 0.0, 0.0, "u"),)),
    ):
        own = spending(budget, earlier)
        plan = own.plan()
        refused = [own.refusal(exchange) is not None for exchange in range(101)]
        assert plan.exchanges == refused.index(True)
        assert plan.grows == (plan.exchanges > 0)
        if plan.exchanges:
            assert own.shown(own.after(plan.exchanges))[0] <= plan.epsilon * (1 + 1e-9)
        else:
            assert own.shown(own.after(1))[0] > plan.epsilon


def test_numbers_that_json_lacks_are_left_out(board):
    board.set("epsilon_spent", math.inf)
    assert json.loads(json.dumps(status_of(board, SITES), allow_nan=False))["spend"]["epsilon"] is None


def test_every_file_of_the_page_is_from_here():
    """No address of anywhere else, no script and no style in the page itself: the policy would refuse them."""
    page = ROOT / "src" / "gossamer" / "net" / "web" / "page"
    texts = {file.name: file.read_text() for file in page.iterdir()}
    assert set(texts) == {"index.html", "page.css", "page.js", "icon.svg"}
    for name, text in texts.items():
        assert set(re.findall(r"https?://[^\s\"'<>]+", text)) <= {"http://www.w3.org/2000/svg"}, name
    assert not re.search(r"style=|<style|<script>|\son\w+=", texts["index.html"])
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|eval\(|document\.write", texts["page.js"])
    used = set(re.findall(r"(?:\$|put)\(\"([\w-]+)\"", texts["page.js"]))
    assert used <= set(re.findall(r'id="([\w-]+)"', texts["index.html"]))
    assert "default-src 'none'" in HEADERS["Content-Security-Policy"]
    assert "unsafe" not in HEADERS["Content-Security-Policy"]


# How it looks.

browser_needed = pytest.mark.skipif(PROGRAM is None, reason=MISSING)
SHOWN = "!document.getElementById('facts').hidden"


@pytest.fixture(scope="module")
def browser():
    with Browser() as opened:
        yield opened


def text_of(browser, name):
    return browser.value(f"document.getElementById('{name}').textContent")


@browser_needed
@pytest.mark.parametrize(("width", "dark"), [(400, False), (1280, True)])
def test_the_page_in_a_browser(board, browser, width, dark):
    endpoint = Endpoint(board, about=SITES)
    try:
        browser.show(f"http://127.0.0.1:{endpoint.port}/", width, dark=dark)
        browser.wait_for(SHOWN)
        assert browser.value("document.documentElement.scrollWidth") <= width
        assert browser.value("innerWidth") == width
        light = browser.value("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]")
        assert (int(light) < 128) == dark
        assert text_of(browser, "sentence") == PROMISE.sentence()
        assert text_of(browser, "spent") == "ε 0.25"
        filled, line = (
            browser.value(f"parseFloat(document.getElementById('{name}').style.{side})")
            for name, side in (("fill", "width"), ("line", "left"))
        )
        assert filled == pytest.approx(line / 4, rel=1e-4)
        assert text_of(browser, "spend-words").endswith("covers 1,000 exchanges; 750 are left. Delta is 1e-5 of 1e-5.")
        rows = browser.value("[...document.querySelectorAll('#neighbours tr')].map(row => row.innerText)")
        assert [row.split() for row in rows] == [
            ["south", "●", "connected", "just", "now"],
            ["east", "✕", "away", "never"],
        ]
        assert browser.value("document.querySelectorAll('#graph circle').length") == 4
        assert browser.value("document.querySelectorAll('#graph line').length") == 4
        assert text_of(browser, "read") == "5"
        assert text_of(browser, "model") == "of exchange 250"
        assert "east was not heard since the start." in text_of(browser, "alarms")
        spoken = browser.spoken()
        for heard in (
            ("heading", "north"),
            ("meter", "Spent against the budget"),
            ("rowheader", "south"),
            ("image", "4 members. north exchanges with south, east. Away: east."),
            ("region", "What is promised claimed, not checked"),
        ):
            assert heard in spoken
        assert browser.value("document.getElementById('meter').getAttribute('aria-valuetext')") == "epsilon 0.25 of 1"
        assert browser.said == []
    finally:
        endpoint.close()


@browser_needed
def test_the_page_is_live_and_says_when_the_node_is_gone(board, browser):
    endpoint = Endpoint(board, about=SITES)
    browser.show(f"http://127.0.0.1:{endpoint.port}/", 400)
    browser.wait_for(f"{SHOWN} && document.getElementById('spent').textContent === 'ε 0.25'")
    board.set("epsilon_spent", 0.5)
    browser.wait_for("document.getElementById('spent').textContent === 'ε 0.5'")
    endpoint.close()
    browser.wait_for("!document.getElementById('gone').hidden")
    assert text_of(browser, "state") == "no answer"
    browser.said.clear()  # of requests that failed


@browser_needed
def test_the_door(board, browser, papers):
    """Without the token the page asks for it; a name with HTML in it is a name."""
    odd = About(members=("<b>north</b>", "south", "west", "<img src=x onerror=alert(1)>"))
    endpoint = Endpoint(board, host="0.0.0.0", about=odd, token=OWNER, certificate=papers)
    page = f"https://127.0.0.1:{endpoint.port}/"
    try:
        browser.show(page, 400)
        browser.wait_for("!document.getElementById('door').hidden")
        assert text_of(browser, "sentence") == ""
        enter = "document.getElementById('token').value = '{}'; document.querySelector('#door button').click()"
        browser.value(enter.format("w" * 43))
        browser.wait_for("document.getElementById('wrong').textContent !== ''")
        browser.value(enter.format(OWNER))
        browser.wait_for(SHOWN)
        assert text_of(browser, "name") == "<b>north</b>"
        assert text_of(browser, "seen") == "only you see this"
        browser.value("sessionStorage.clear()")
        browser.show("about:blank", 400)
        browser.show(f"{page}#token={OWNER}", 400)
        browser.wait_for(SHOWN)
        assert OWNER not in browser.value("location.href")
        assert [one for one in browser.said if "401" not in one] == []
    finally:
        endpoint.close()
        browser.said.clear()
