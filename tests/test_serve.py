"""The board and its endpoint: every route, hostile requests, and nothing but what the allow-lists have."""

from __future__ import annotations

import ast
import http.client
import io
import json
import math
import re
import socket
import time
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from gossamer import net
from gossamer.data import Choice, Number, Schema
from gossamer.errors import ConfigurationError, DataError, NetworkError
from gossamer.model import trained
from gossamer.net.data.sources import from_iterable
from gossamer.net.node.spending import Refusal
from gossamer.net.web.allowed import ALLOWED, DROPS, EVENTS, STATES
from gossamer.net.web.endpoint import Endpoint
from gossamer.net.web.server import Limits
from gossamer.net.web.status_board import Board
from gossamer.net.wire.frames import REASONS
from gossamer.privacy import Guarantee, Pure
from gossamer.problems import LeastSquares, Logistic, Softmax, small_cnn

PROMISE = Guarantee("proven", losses=(Pure(1.0),), deltas=(0.0,), horizon=1000)
MARKED = 123456.7  # of a sample: may appear nowhere


@pytest.fixture
def logs():
    return io.StringIO()


@pytest.fixture
def board(logs):
    return Board(Logistic(2), PROMISE, learner=3, logs=logs)


@pytest.fixture
def endpoint(board):
    opened = Endpoint(board)
    yield opened
    opened.close()


def ask(endpoint, path, method="GET", body=None, **headers):
    """Status, headers and body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.port, timeout=10)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def ask_json(endpoint, path, method="GET", body=None, **headers):
    status, sent, read = ask(endpoint, path, method, body, **headers)
    assert sent["Content-Type"] == "application/json"
    return status, json.loads(read)


def raw(endpoint, data):
    """All that comes back for these bytes."""
    with socket.create_connection(("127.0.0.1", endpoint.port), timeout=10) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(4096), b""))


# The board


def test_counters_and_gauges(board):
    board.count("exchanges")
    board.count("exchanges", 2)
    board.count("commit_seconds", 0.25)
    board.count("frames_dropped", reason="size")
    board.set("epsilon_spent", np.float32(0.5))
    board.set("epsilon_spent", math.inf)
    board.set("ledger_rows", np.int64(7))
    lines = board.prometheus().splitlines()
    for line in (
        'gossamer_exchanges_total{learner="3"} 3',
        'gossamer_commit_seconds_total{learner="3"} 0.25',
        'gossamer_frames_dropped_total{learner="3",reason="size"} 1',
        'gossamer_frames_dropped_total{learner="3",reason="late"} 0',
        'gossamer_epsilon_spent{learner="3"} +Inf',
        'gossamer_ledger_rows{learner="3"} 7',
        "# TYPE gossamer_ledger_rows gauge",
    ):
        assert line in lines
    assert not any(line.startswith("gossamer_horizon") for line in lines)


def test_the_text_is_what_prometheus_reads(board):
    for name, metric in ALLOWED.items():
        if metric.kind == "gauge" and not metric.label:
            board.set(name, 1.5e-9)
    board.meet([1, 2])
    board.heard(2)
    text = board.prometheus()
    assert text.endswith("\n")
    assert len(re.findall(r"^# HELP gossamer_\w+ \S.*$", text, re.M)) == len(ALLOWED)
    assert len(re.findall(r"^# TYPE gossamer_\w+ (counter|gauge)$", text, re.M)) == len(ALLOWED)
    rest = [line for line in text.splitlines() if not line.startswith("#")]
    labelled = len(DROPS) + len(STATES) + 2 + 1 + 1  # two are neighbours, one was heard, one version
    assert len(rest) == sum(not metric.label for metric in ALLOWED.values()) + labelled
    number = r"(?:[0-9.]+(?:e-?[0-9]+)?|\+Inf)"
    assert all(re.fullmatch(rf'gossamer_\w+{{learner="3"(,\w+="[\w.]+")?}} {number}', line) for line in rest)


@pytest.mark.parametrize("name", ["loss", "accuracy", "samples", "regret", "gradient_norm", "ledger_rows", "Exchanges"])
def test_what_is_not_on_the_list_is_not_counted(board, name):
    before = board.prometheus()
    with pytest.raises(ConfigurationError, match="metric"):
        board.count(name)
    assert board.prometheus() == before


def test_what_is_not_on_the_list_is_not_set(board):
    for name in ("loss", "exchanges"):
        with pytest.raises(ConfigurationError, match="metric"):
            board.set(name, 0.5)
    assert not {name for name in ALLOWED if re.search("loss|accura|sample|regret|gradient|label", name)}
    assert set(REASONS) < set(DROPS)


@pytest.mark.parametrize("value", [math.nan, True, "1", None, [1.0], np.ones(1)])
def test_only_numbers_are_measured(board, value):
    with pytest.raises(ConfigurationError, match=r"a (finite )?number"):
        board.count("exchanges", value)
    with pytest.raises(ConfigurationError, match="a number"):
        board.set("ledger_rows", value)


def test_counters_only_grow(board):
    for by in (-1, math.inf):
        with pytest.raises(ConfigurationError, match="at least 0"):
            board.count("exchanges", by)


def test_reasons_are_a_list_too(board):
    for name, reason in (("frames_dropped", None), ("frames_dropped", "bored"), ("exchanges", "size")):
        with pytest.raises(ConfigurationError, match="reason"):
            board.count(name, reason=reason)


def test_states(board):
    assert board.state == "starting"
    board.state = "running"
    told = {"learner": 3, "state": "running", "healthy": True, "exchange": None, "seconds_since_exchange": None}
    assert board.health() == told | {"neighbours": 0, "neighbours_connected": 0}
    with pytest.raises(ConfigurationError, match="state"):
        board.state = "bored"


def test_decisions_are_copied_and_checked(board):
    decision = np.float32([1, 2])
    board.publish(4, decision)
    decision[:] = 0
    assert board.decision() == {"learner": 3, "state": "starting", "exchange": 4, "decision": [1.0, 2.0]}
    with pytest.raises(ConfigurationError, match="shape"):
        board.publish(5, np.ones(3, np.float32))
    with pytest.raises(ConfigurationError, match="exchange"):
        board.publish(-1, decision)
    with pytest.raises(DataError, match="exchange 5 is NaN at"):
        board.publish(5, np.float32([1, np.nan]))
    assert board.decision()["exchange"] == 4


def test_predictions_are_the_problems_own(board):
    rng = np.random.default_rng(0)
    for problem in (Logistic(4), LeastSquares(4, feature_bound=1.0), Softmax(4, classes=3)):
        own = Board(problem, PROMISE, 0)
        decision = rng.normal(size=problem.dim).astype(np.float32)
        own.publish(1, decision)
        rows = rng.normal(size=(5, 4)).astype(np.float32)
        expected = np.asarray(problem.predict(decision, rows))
        np.testing.assert_allclose(own.predict(rows.tolist())["prediction"], expected, rtol=1e-5)
        assert len(set(expected.tolist())) > 1
        np.testing.assert_allclose(own.predict(rows[3])["prediction"], expected[3], rtol=1e-5)


def test_predictions_for_images():
    problem = small_cnn((10, 10, 1), 3, channels=2, hidden=2, seed=0)
    own = Board(problem, PROMISE, 0)
    own.publish(0, problem.initial_decision())
    image = np.ones((10, 10, 1), np.float32)
    assert isinstance(own.predict(image.tolist())["prediction"], int)
    assert len(own.predict([image.tolist()] * 2)["prediction"]) == 2


def test_few_programs_are_compiled(board):
    board.publish(0, np.ones(2, np.float32))
    before = trained._compiled._cache_size()
    for rows in range(1, 33):
        assert board.predict([[1, 2]] * rows)["prediction"] == [1] * rows
    assert trained._compiled._cache_size() - before == 12  # classes and probabilities of 1, 2, 4, ... rows


def test_no_prediction_before_the_first_decision(board):
    with pytest.raises(NetworkError, match="no decision yet"):
        board.predict([1, 2])


def test_no_prediction_for_nothing(board):
    board.publish(0, np.ones(2, np.float32))
    with pytest.raises(DataError, match="no samples"):
        board.predict(np.ones((0, 2), np.float32))


# Logs


def test_log_lines_are_json(board, logs):
    board.log("serving", host="127.0.0.1", port=8400)
    board.log("budget_used_up", exchange=np.int64(3))
    board.log("frame_dropped", reason="late", sender=1)
    first, second, third = map(json.loads, logs.getvalue().splitlines())
    assert abs(first.pop("time") - time.time()) < 60
    assert first == {"level": "info", "event": "serving", "learner": 3, "host": "127.0.0.1", "port": 8400}
    assert second["exchange"] == 3
    assert third["level"] == "warning"


def test_standard_error_is_the_default(capsys):
    Board(Logistic(2), PROMISE, 0).log("stopped")
    assert json.loads(capsys.readouterr().err)["event"] == "stopped"


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        ("sample", {}),
        ("started", {"loss": 0.5}),
        ("started", {"samples": 3}),
        ("started", {"exchange": np.ones(3)}),
        ("started", {"exchange": [1.0]}),
        ("started", {"exchange": math.nan}),
        ("started", {"exchange": math.inf}),
        ("started", {"exchange": None}),
        ("frame_dropped", {"reason": "bored"}),
        ("refused", {"reason": "x" * 501}),
    ],
)
def test_what_is_not_on_the_list_is_not_logged(board, logs, event, fields):
    with pytest.raises(ConfigurationError):
        board.log(event, **fields)
    assert logs.getvalue() == ""


def test_the_list_has_what_nodes_log_and_no_more():
    """By the source: the event, or a variable that holds why a run ended, and the names of the fields."""
    logged = {}
    for file in Path(net.__file__).parent.rglob("*.py"):
        for call in ast.walk(ast.parse(file.read_text())):
            if isinstance(call, ast.Call) and getattr(call.func, "attr", "") in ("log", "log_seldom"):
                named = {keyword.arg for keyword in call.keywords}
                told = call.args[0]
                events = [told.value] if isinstance(told, ast.Constant) else get_args(Refusal)
                if None not in named:  # **fields: it hands on what another call has
                    logged |= dict.fromkeys(events, named)
    assert logged == {event: set(allowed.fields) for event, allowed in EVENTS.items()}


def test_one_line_each_whatever_the_text_has(board, logs):
    board.log("refused", reason='two\nlines "quoted"\x00')
    assert logs.getvalue().count("\n") == 1
    assert {event.level for event in EVENTS.values()} == {"info", "warning", "error"}


# The endpoint


@pytest.mark.parametrize(
    ("state", "status"), [("starting", 503), ("running", 200), ("finished", 200), ("exhausted", 200), ("stopped", 503)]
)
def test_health(board, endpoint, state, status):
    board.state = state
    answered, health = ask_json(endpoint, "/healthz")
    assert (answered, health["state"]) == (status, state)


def test_metrics(board, endpoint):
    board.count("resent", 5)
    status, headers, body = ask(endpoint, "/metrics?name[]=x")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert body.decode() == board.prometheus()
    assert b'gossamer_messages_resent_total{learner="3"} 5' in body


def test_guarantee(endpoint):
    status, facts = ask_json(endpoint, "/guarantee")
    assert status == 200
    assert facts.pop("sentence") == PROMISE.sentence()
    assert Guarantee.from_json(json.dumps(facts)) == PROMISE


def test_decision(board, endpoint):
    assert ask_json(endpoint, "/decision")[1]["decision"] is None
    board.publish(9, np.float32([0.1, -2]))
    facts = ask_json(endpoint, "/decision")[1]
    assert (facts["exchange"], facts["state"]) == (9, "starting")
    np.testing.assert_array_equal(np.float32(facts["decision"]), np.float32([0.1, -2]))


def test_predict(board, endpoint):
    assert ask_json(endpoint, "/predict", "POST", '{"x": [1, 2]}')[0] == 503
    board.publish(9, np.float32([1, -2]))
    one = {"prediction": 0, "probabilities": [pytest.approx(0.952574, abs=1e-5), pytest.approx(0.047426, abs=1e-5)]}
    assert ask_json(endpoint, "/predict", "POST", '{"x": [1, 2]}') == (200, one | {"exchange": 9, "classes": [0, 1]})
    status, many = ask_json(endpoint, "/predict", "POST", '{"x": [[1, 2], [3, 1], [0, 0]]}')
    assert (status, many["prediction"], many["exchange"]) == (200, [0, 1, 0], 9)
    np.testing.assert_allclose(many["probabilities"], [[0.952574, 0.047426], [0.26894, 0.73106], [0.5, 0.5]], atol=1e-5)


SCHEMA = Schema((Number("age", 0, 100), Choice("smoker", ("no", "yes"))), Choice("ill", ("healthy", "ill")))


def test_predict_by_names_of_columns(logs):
    """Probabilities and names of classes, whatever the order of columns and whatever else a record has."""
    own = Board(Logistic(4), PROMISE, 0, schema=SCHEMA, logs=logs)
    own.publish(5, np.float32([2, -1, 1, 0]))
    opened = Endpoint(own)
    try:
        body = '{"smoker": "yes", "town": "Bern", "age": 75}'
        status, facts = ask_json(opened, "/predict", "POST", body)
        assert (status, facts["prediction"], facts["classes"], facts["exchange"]) == (200, "ill", ["healthy", "ill"], 5)
        np.testing.assert_allclose(facts["probabilities"], [1 - 0.880797, 0.880797], atol=1e-5)
        status, facts = ask_json(opened, "/predict", "POST", f'[{body}, {{"age": "0", "smoker": "no"}}]')
        assert (status, facts["prediction"]) == (200, ["ill", "healthy"])
        assert [len(row) for row in facts["probabilities"]] == [2, 2]
        for bad, said in (
            ("{}", "no column 'age'"),
            (f'{{"age": 1, "smoker": "{MARKED}"}}', "not in the schema"),
            ('{"age": null, "smoker": "no"}', "holds no number"),
            ('{"x": [1, 2]}', "no column 'age'"),
            ("[]", "no samples"),
            ("[[1, 2]]", "columns by name"),
            ("5", "a record"),
        ):
            status, facts = ask_json(opened, "/predict", "POST", bad)
            assert status == 400
            assert said in facts["error"]
            assert "12345" not in facts["error"]
    finally:
        opened.close()


def test_a_target_is_predicted_in_its_unit():
    own = Board(LeastSquares(2), PROMISE, 0, schema=Schema((Number("age", 0, 100),), Number("cost", 0, 5000)))
    own.publish(5, np.float32([0.5, 0.1]))
    assert own.predict({"age": 100}) == {"prediction": pytest.approx(4000), "exchange": 5}


def test_a_prediction_beyond_float32_is_refused():
    own = Board(LeastSquares(2), PROMISE, 0)
    own.publish(5, np.float32([3, 3]))
    with pytest.raises(DataError, match="row 1: the prediction is beyond"):
        own.predict([[1, 1], [3e38, 1]])


@pytest.mark.parametrize(
    "x",
    [
        *("[]", "[[]]", "5", "null", '"ab"', "{}", "[{}]", "[1]", "[1, 2, 3]", "[1, [2]]", "[[1, 2], 3]"),
        *("[[1, 2], [3]]", "[[[1, 2]]]", "[true, 1]", '["1", 2]', "[NaN, 1]", "[1, 1e999]", "[1, 1e39]", "[1, 2"),
        *("[1, null]", "[" * 40_000, "[" * 300 + "]" * 300, "[1, 1" + "0" * 400 + "]"),
    ],
)
def test_bad_features(board, endpoint, x):
    board.publish(9, np.float32([1, -2]))
    status, facts = ask_json(endpoint, "/predict", "POST", f'{{"x": {x}}}')
    assert status == 400
    assert len(facts["error"]) < 200


def test_a_body_that_would_take_much_memory(board, endpoint):
    board.publish(9, np.float32([1, -2]))
    for body in ("[" + "[]," * 60_000 + "[]]", "[" + "{}," * 60_000 + "{}]"):
        status, facts = ask_json(endpoint, "/predict", "POST", body)
        assert (status, facts["error"]) == (413, "at most 50,000 rows are taken at once")


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"[1, 2]", b'{"y": [1, 2]}', b"x=1"])
def test_bad_bodies(board, endpoint, body):
    board.publish(9, np.float32([1, -2]))
    assert ask_json(endpoint, "/predict", "POST", body)[0] == 400


def test_paths_and_methods(endpoint):
    status, facts = ask_json(endpoint, "/secret")
    assert status == 404
    assert "GET /metrics" in facts["error"]
    assert "secret" not in facts["error"]
    for method, path, allowed in (("GET", "/predict", "POST"), ("POST", "/metrics", "GET")):
        status, headers, _ = ask(endpoint, path, method, None)
        assert (status, headers["Allow"]) == (405, allowed)
    for method in ("PUT", "DELETE", "HEAD", "OPTIONS", "TRACE"):
        status, headers, _ = ask(endpoint, "/metrics", method)
        assert (status, headers["Allow"]) == (405, "GET, POST")


def test_sizes_of_bodies(board):
    board.publish(9, np.float32([1, -2]))
    endpoint = Endpoint(board, limits=Limits(body=100))
    body = '{"x": [1, 2]}'
    for headers, status in (
        (f"Content-Length: {len(body)}", 200),
        (f"Content-Length: {len(body)}\r\nTransfer-Encoding: chunked", 411),
        (f"Content-Length: {len(body) + 1}", 400),
        ("Content-Length: 101", 413),
        (f"Content-Length: {'9' * 5000}", 413),
        ("Content-Length: -1", 411),
        ("Content-Length: 1e3", 411),
        ("Content-Length: ²", 411),
        ("Content-Length:", 411),
        ("X: y", 411),
    ):
        request = f"POST /predict HTTP/1.1\r\nHost: localhost:{endpoint.port}\r\n{headers}\r\n\r\n{body}"
        assert raw(endpoint, request.encode("latin-1")).startswith(b"HTTP/1.1 %d" % status)
    endpoint.close()


def test_other_names_of_this_host_are_refused(endpoint):
    port = endpoint.port
    for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}", f"LocalHost:{port}"):
        assert ask(endpoint, "/metrics", Host=host)[0] == 200
    for host in (
        "evil.example",
        f"evil.example:{port}",
        "localhost",
        f"localhost:{port + 1}",
        f"localhost.evil:{port}",
    ):
        status, _, body = ask(endpoint, "/metrics", Host=host)
        assert status == 403
        assert b"gossamer_exchanges" not in body
        assert b"evil" not in body
    assert raw(endpoint, b"GET /metrics HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 403")


def test_the_name_of_this_machine(board):
    opened = Endpoint(board, host="localhost")
    try:
        assert ask(opened, "/metrics")[0] == 200
        assert ask(opened, "/metrics", Host="evil.example")[0] == 403
    finally:
        opened.close()


def test_no_versions_and_no_access_log(board, endpoint, logs, capfd):
    requests = [f"GET {path} HTTP/1.0\r\nHost: localhost:{endpoint.port}\r\n\r\n" for path in ("/metrics", "/nothing")]
    for request in (*requests, "GET\r\n\r\n", "BREW / HTTP/1.1\r\n\r\n", "GET / HTTP/7.7\r\n\r\n", "\x16\x03\x01\r\n"):
        answer = raw(endpoint, request.encode("latin-1"))
        assert answer
        assert not re.search(rb"server:|python|basehttp|BREW|7\.7|\x16", answer, re.I)
    assert logs.getvalue() == ""
    assert capfd.readouterr() == ("", "")


def test_a_client_that_goes_away_does_no_harm(endpoint, capfd):
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", endpoint.port)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            connection.sendall(b"POST /predict HTTP/1.0\r\nContent-Length: 99\r\n")
    assert ask(endpoint, "/metrics")[0] == 200
    assert capfd.readouterr() == ("", "")


def test_a_fault_inside_shows_nothing(board, endpoint, monkeypatch, capfd):
    def broken(features):
        raise RuntimeError(f"with {features}")

    monkeypatch.setattr(board, "predict", broken)
    status, facts = ask_json(endpoint, "/predict", "POST", f'{{"x": [{MARKED}]}}')
    assert (status, facts) == (500, {"error": "an internal error"})
    assert capfd.readouterr() == ("", "")


def test_a_marked_sample_is_nowhere(board, endpoint, logs, capfd):
    """Used, refused and asked for: its number is in no metric, no log line, no error and not on the terminal."""
    board.publish(0, np.float32([0.5, 0.5]))
    samples = [([MARKED, 1], 1), ([MARKED, math.nan], 1), ([MARKED], 0)]
    source = from_iterable(samples, Logistic(2), faults=lambda fault: board.log("refused", reason=fault))
    assert sum(sample is not None for sample in source.take(5)) == 1
    seen = [ask(endpoint, "/predict", "POST", json.dumps({"x": x}).encode())[2] for x, _ in samples]
    seen += [ask(endpoint, path)[2] for path in ("/metrics", "/healthz", "/decision", "/guarantee", f"/{MARKED}")]
    assert logs.getvalue().count("\n") == 2
    everything = b"".join(seen) + logs.getvalue().encode() + "".join(capfd.readouterr()).encode()
    assert b"prediction" in everything
    assert b"12345" not in everything


def test_closing_frees_the_port(board):
    first = Endpoint(board)
    with pytest.raises(ConfigurationError, match=r"a free port.*http in node\.toml"):
        Endpoint(board, port=first.port)
    first.close()
    again = Endpoint(board, port=first.port)
    assert ask(again, "/metrics")[0] == 200
    again.close()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", first.port))


def test_bad_addresses(board):
    for settings, field in (({"host": "node.example"}, "host"), ({"port": 70000}, "port"), ({"port": -1}, "port")):
        with pytest.raises(ConfigurationError, match=field):
            Endpoint(board, **settings)
