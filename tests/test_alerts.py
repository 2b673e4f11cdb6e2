"""Alert rules and dashboard: they ask for metrics that there are, and do what they say."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gossamer.net.web.allowed import ALLOWED, STATES

ROOT = Path(__file__).parent.parent
PROMETHEUS = ROOT / "deploy" / "prometheus"
DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "nodes.json").read_text())
QUERIES = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
SHOWN = {f"gossamer_{one.named or name}{'_total' * (one.kind == 'counter')}" for name, one in ALLOWED.items()}

promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool here: `apt-get install prometheus` brings it"
)


def checked(*words: str) -> None:
    done = subprocess.run(["promtool", *words], cwd=PROMETHEUS, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_rules_and_dashboard_ask_for_metrics_that_there_are():
    rules = (PROMETHEUS / "rules.yml").read_text()
    asked = set(re.findall(r"gossamer_\w+", rules + "".join(QUERIES)))
    assert asked <= SHOWN
    assert set(re.findall(r'state="(\w+)"', rules)) <= set(STATES)
    for needed in ("epsilon_spent", "epsilon_budget", "last_exchange_timestamp_seconds", "build_info"):
        assert f"gossamer_{needed}" in asked


def test_names_are_as_prometheus_wants_them():
    for name, one in ALLOWED.items():
        full = f"gossamer_{one.named or name}"
        assert re.fullmatch(r"gossamer_[a-z_]+", full)
        assert not full.endswith(("_total", "_time", "_count", "_sum", "_bucket"))
        assert one.help[0].isupper()
        assert one.help.endswith(".")


def test_the_dashboard_has_every_panel_in_its_place():
    places = [tuple(panel["gridPos"][side] for side in "xywh") for panel in DASHBOARD["panels"]]
    cells = [(x + i, y + j) for x, y, w, h in places for i in range(w) for j in range(h)]
    assert len(cells) == len(set(cells))
    assert all(x + w <= 24 for x, _, w, _ in places)
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


@promtool
def test_rules_do_what_they_say():
    checked("check", "config", "prometheus.yml")
    checked("test", "rules", "rules-test.yml")


@promtool
def test_queries_of_the_dashboard_can_be_read(tmp_path):
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(QUERIES)]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    checked("check", "rules", "--lint=none", str(tmp_path / "rules.yml"))


@promtool
def test_metrics_are_as_prometheus_wants_them():
    from tests.test_page import a_board

    given = a_board().prometheus()
    done = subprocess.run(["promtool", "check", "metrics"], input=given, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
