"""Every command, its exit status, and what a wrong file is told."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import gossamer
from gossamer import Run
from gossamer.algorithms import REGISTRY
from gossamer.cli import app, load, play
from gossamer.cli import demo as demonstration
from gossamer.cli.demo import Demo
from gossamer.errors import ConfigurationError
from gossamer.experiments import Measured, Section, Study
from gossamer.spec import keys_of
from gossamer.spec.kinds import _families

pytestmark = pytest.mark.unoptimized

SHARE = 0.1  # of the steps of the demo
EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.toml"))
SMALL = """
[problem]
kind = "logistic"
[data]
generator = "smooth-cycle-logistic"
dim = 3
seed = 1
[topology]
kind = "ring"
learners = 4
[algorithm]
name = "noisy_ogd"
step = {scale = 0.5}
scale = 0.1
[simulate]
steps = 20
seed = 0
"""


def gossamer_(*arguments: object, columns: int = 80) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": str(columns)})


@pytest.fixture
def small(tmp_path: Path) -> Path:
    file = tmp_path / "small.toml"
    file.write_text(SMALL)
    return file


def changed(tmp_path: Path, *edits: tuple[str, str]) -> Path:
    """The small file with texts replaced."""
    text = SMALL
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    file = tmp_path / "changed.toml"
    file.write_text(text)
    return file


@pytest.fixture(scope="module")
def demo() -> Demo:
    return play(share=SHARE)


def test_version() -> None:
    result = gossamer_("--version")
    assert (result.exit_code, result.stdout) == (0, f"gossamer {gossamer.__version__}\n")


def test_no_command_shows_help() -> None:
    result = gossamer_()
    assert all(command in result.output for command in ("demo", "run", "algorithms", "datasets"))


@pytest.mark.parametrize("columns", [80, 120])
def test_algorithms_are_listed_whole(columns: int) -> None:
    result = gossamer_("algorithms", columns=columns)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= columns
    assert "…" not in result.stdout
    for name, entry in REGISTRY.items():
        (line,) = [line for line in lines if line.startswith(f"{name} ")]
        assert entry.network in line
        noised = "published" if name in ("dsgd", "pdop") else "none"
        assert line.split()[-1] == ("proven" if "budget" in entry.example else noised)


def test_datasets_say_where_they_come_from() -> None:
    result = gossamer_("datasets")
    assert result.exit_code == 0
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("breast_cancer")]
    assert "scikit-learn" in line


def test_calibrate_shows_tight_against_published() -> None:
    result = gossamer_("calibrate", "pd_ogd", "--epsilon", 1, "--horizon", 1000, "--dim", 4, columns=120)
    assert result.exit_code == 0, result.output
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("noise on gradient")]
    assert line.split() == ["noise", "on", "gradient", "(laplace)", "4", "4000"]
    assert "enforced by gossamer.problems.Problem.clipped_data_gradient_sum" in " ".join(result.stdout.split())


def test_calibrate_knows_prediction_from_experts() -> None:
    result = gossamer_("calibrate", "fed_svt", "--epsilon", 1, "--horizon", 1000, "--dim", 20, columns=150)
    assert result.exit_code == 0, result.output
    assert "fed_svt on server with 10 learners, 20 dimensions" in result.output
    for calibration in ("tight", "published", "remainder", "halves"):
        assert f"{calibration}: " in result.output


def test_calibrate_says_why_a_calibration_is_refused() -> None:
    options = ("--epsilon", 1, "--delta", 1e-5, "--option", "noise=gaussian")
    result = gossamer_("calibrate", "pd_ogd", *options, columns=120)
    assert result.exit_code == 0, result.output
    assert "published: horizon: got None" in result.stdout
    assert "7.461" in result.stdout  # 2 / mu_star(1, 1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("d_ogd", "--epsilon", 1), "one with a budget: pd_ogd"),
        (("pd_ogg", "--epsilon", 1), "The nearest is 'pd_ogd'"),
        (("pd_ogd", "--epsilon", 0), "epsilon: got 0.0"),
        (("pd_ogd", "--epsilon", 1, "--delta", 2), "delta: got 2.0"),
        (("pd_ogd", "--epsilon", 1, "--clip", -1), "clip: got -1.0"),
        (("pd_ogd", "--epsilon", 1, "--option", "noise"), "KEY=VALUE"),
        (("pd_ogd", "--epsilon", 1, "--option", "nois=laplace"), "The nearest is 'noise'"),
        (("pd_ogd", "--epsilon", 1, "--option", "noise=gaussian"), "delta: got 0.0"),
        (("pd_ogd", "--epsilon", 1, "--horizon", 0), "horizon: got 0"),
        (
            ("pd_ftgl", "--epsilon", 1),
            "--horizon: got nothing; allowed: a whole number of steps. Give --horizon: pd_ftgl",
        ),
        (("ldp_endless", "--epsilon", 1), "Give --horizon: ldp_endless does not run endlessly with these options."),
        (("online_federated", "--epsilon", 1), "Give --option steps_per_exchange=VALUE."),
    ],
)
def test_calibrate_refuses_what_makes_no_sense(arguments: tuple[object, ...], message: str) -> None:
    result = gossamer_("calibrate", *arguments, columns=200)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_calibrate_knows_budgets_of_each_learner() -> None:
    result = gossamer_("calibrate", "ldp_endless", "--epsilon", 1, "--horizon", 1000, columns=150)
    assert result.exit_code == 0, result.output
    assert "noise on parameters (laplace)" in result.stdout


def test_hints_name_what_is_near_or_where_to_look() -> None:
    far = gossamer_("audit", "nonsense", "--seed", 1).stderr
    assert "nearest" not in far
    assert far.endswith("`gossamer algorithms` lists them, and what each is.\n")
    assert gossamer_("audit", "pd_odg", "--seed", 1).stderr.endswith("The nearest is 'pd_ogd'.\n")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run(example: Path, tmp_path: Path) -> None:
    result = gossamer_("run", example, "--steps", 40, "--out", tmp_path / "new" / "out")
    assert result.exit_code == 0, result.output
    saved = Run.load(tmp_path / "new" / "out")
    assert saved.steps[-1] == 40
    assert f"{saved.bytes:,}" in result.stdout
    assert ("Proven: " if "private" in example.stem else "No privacy guarantee") in result.stdout
    assert (tmp_path / "new" / "out" / "report.html").stat().st_size > 10**6


def test_all_examples_are_there() -> None:
    assert [path.stem for path in EXAMPLES] == [
        "digits-ring",
        "private-coordinates",
        "private-experts",
        "private-federated",
        "private-ring",
    ]


def test_same_seed_same_numbers_and_another_seed_others(small: Path) -> None:
    first, again, other = (load(small, seed=seed).run() for seed in (5, 5, 6))
    np.testing.assert_array_equal(first.losses, again.losses)
    assert (first.losses != other.losses).any()


def test_the_file_is_the_call(small: Path) -> None:
    problem, stream = gossamer.problems.Logistic(3), gossamer.streams.smooth_cycle_logistic(4, 3, seed=1)
    ring = gossamer.topology.ring(4)
    algorithm = gossamer.algorithms.noisy_ogd(problem, ring, step=gossamer.Rate(0.5), scale=0.1)
    np.testing.assert_array_equal(
        load(small).run().losses, gossamer.simulate(algorithm, stream, 20, seed=0, progress=False).losses
    )


def test_a_saved_run_and_its_report_do_not_hold_the_seed(small: Path, tmp_path: Path) -> None:
    assert gossamer_("run", small, "--seed", 918273, "--out", tmp_path).exit_code == 0
    assert "918273" not in (tmp_path / "report.html").read_text().replace(" ", "")
    assert "seed" not in json.loads((tmp_path / "run.json").read_text())


def test_several_seeds(tmp_path: Path) -> None:
    result = gossamer_("run", changed(tmp_path, ("seed = 0", "seeds = [1, 2, 3]")), "--out", tmp_path)
    assert result.exit_code == 0, result.output
    assert Run.load(tmp_path).losses.shape == (3, 20, 4)


def test_command_line_wins_over_the_file(tmp_path: Path) -> None:
    experiment = load(changed(tmp_path, ("seed = 0", "seeds = [1, 2]")), steps=7, seed=3)
    assert experiment.settings.table == {"steps": 7, "seed": 3}


def test_nested_topologies(tmp_path: Path) -> None:
    ring = 'kind = "ring"\nlearners = 4'
    failing = 'kind = "with-link-failures"\nprobability = 0.5\nseed = 1\ntopology = {kind = "ring", learners = 4}'
    assert load(changed(tmp_path, (ring, failing))).algorithm.learners == 4
    parts = 'kind = "alternating"\nparts = [{kind = "ring", learners = 4}, {kind = "star", learners = 4}]'
    assert load(changed(tmp_path, (ring, parts))).algorithm.learners == 4


def test_files_may_name_algorithms_of_other_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = """
from gossamer import Algorithm, algorithms, problems, topology
from gossamer.spec import kind

@kind("algorithm", "strangers:slow")
def slow(problem: problems.Problem, topology: topology.Topology, *, step: float = 0.01) -> Algorithm:
    return algorithms.d_ogd(problem, topology, step=step)
"""
    module = types.ModuleType("strangers")
    monkeypatch.setitem(sys.modules, "strangers", module)
    exec(source, module.__dict__)
    try:
        file = changed(tmp_path, ('name = "noisy_ogd"\nstep = {scale = 0.5}\nscale = 0.1', 'name = "strangers:slow"'))
        assert load(file).run().losses.shape == (20, 4)
    finally:
        del _families["algorithm"]["strangers:slow"]


def test_weights_as_a_matrix(tmp_path: Path) -> None:
    file = changed(tmp_path, ("learners = 4", "learners = 2\nweights = [[0.75, 0.25], [0.25, 0.75]]"))
    topology = load(file).algorithm.topology
    assert isinstance(topology, gossamer.topology.Topology)
    assert topology.own_weight(0) == 0.75


def test_data_from_a_file_and_a_decision_set(tmp_path: Path) -> None:
    x = np.arange(24.0).reshape(12, 2) / 24
    np.savez(tmp_path / "mine.npz", x=x, y=np.arange(12) % 3)
    file = changed(
        tmp_path,
        ('kind = "logistic"', 'kind = "softmax"\nclasses = 3\ndomain = {kind = "box", low = -1, high = 1.0, dim = 6}'),
        ('generator = "smooth-cycle-logistic"\ndim = 3', f'path = "{tmp_path}/mine.npz"\npasses = 7'),
    )
    experiment = load(file)
    problem = experiment.algorithm.problem
    assert isinstance(problem, gossamer.problems.Softmax)
    assert (problem.features, problem.classes) == (2, 3)
    assert problem.domain == gossamer.sets.Box(-1.0, 1.0, dim=6)
    assert experiment.stream.occurrences == 7


def test_standardised_data_claim_nothing_per_record(tmp_path: Path) -> None:
    """One record changes the mean of all; public ranges, the default, do not look at records."""

    def stream_of(options: str) -> gossamer.streams.Stream:
        named = f'name = "breast_cancer"{options}'
        return load(changed(tmp_path, ('generator = "smooth-cycle-logistic"\ndim = 3', named))).stream

    standard, public = stream_of('\nscaling = "standardised"'), stream_of("")
    assert (standard.occurrences, public.occurrences) == (None, 1)
    assert standard.description == f"{public.description}, standardised with all of them"
    by_label = stream_of('\npartition = "by-label"\npublic_labels = true\npasses = 2')
    assert (by_label.occurrences, by_label.public_labels) == (2, True)


COORDINATES = ('name = "noisy_ogd"\nstep = {scale = 0.5}\nscale = 0.1', 'name = "dpsda_c"\nnoise = "none"')


def test_common_data_are_played_to_all_and_size_the_batch(tmp_path: Path) -> None:
    generator, name = (
        'generator = "smooth-cycle-logistic"\ndim = 3',
        'name = "breast_cancer"\nbatch = 5\nshuffle = true',
    )
    experiment = load(changed(tmp_path, (generator, name), COORDINATES))
    assert (experiment.stream.shared, experiment.stream.read(0, 1).x.shape) == (True, (1, 5, 30))
    assert experiment.run().losses.shape == (20, 4)
    own = COORDINATES[0], COORDINATES[1] + "\nbatch = 6"
    assert "batches of 5" in refusal(changed(tmp_path, (generator, name), own))
    assert "[data] generator" in refusal(changed(tmp_path, COORDINATES))


def test_images_for_a_convolutional_network(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "mine.npz", x=rng.random((8, 10, 10)), y=np.arange(8) % 2)
    network = 'kind = "small-cnn"\nchannels = 2\nhidden = 3\nseed = 0\nclasses = 2'
    generator = 'generator = "smooth-cycle-logistic"\ndim = 3'
    images = f'path = "{tmp_path}/mine.npz"\npasses = 10'
    file = changed(tmp_path, ('kind = "logistic"', network), (generator, images))
    assert load(file).algorithm.problem.feature_shape == (10, 10, 1)
    file = changed(tmp_path, ('kind = "logistic"', network), (generator, 'name = "digits"'))
    assert "images" in refusal(file)


def test_no_key_of_a_function_is_lost() -> None:
    assert set(keys_of(gossamer.problems.Softmax)) == {"dim", "classes", "l2", "feature_bound", "domain", "start"}
    assert set(keys_of(gossamer.topology.ring)) == {"learners", "weights"}
    assert {"steps", "seed", "seeds", "measure", "every", "record"} <= set(keys_of(gossamer.simulate))


def refusal(file: Path) -> str:
    """What `gossamer run` says about a file that it refuses, in one line."""
    result = gossamer_("run", file)
    assert result.exit_code == 2, result.output
    assert "average loss" not in result.stdout
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


REFUSALS = {
    "unknown key": (
        ("learners = 4", "lerners = 4"),
        "[topology] lerners: got 4; allowed: the keys kind, learners, weights. The nearest is 'learners'.",
    ),
    "unknown section": (("[topology]", "[topolgy]"), "[topolgy]: got {"),
    "nearest section": (("[topology]", "[topolgy]"), "The nearest is 'topology'."),
    "key outside sections": (("[problem]", "steps = 3\n[problem]"), "steps: got 3; allowed: the sections [problem]"),
    "missing key": (("dim = 3\n", ""), "[data] dim: got nothing; allowed: a whole number. Add dim to [data]."),
    "missing section": (
        ('[problem]\nkind = "logistic"', ""),
        "[problem]: got nothing; allowed: the sections [problem]",
    ),
    "text for a number": (("learners = 4", 'learners = "4"'), "[topology] learners: got '4'; allowed: a whole number."),
    "a fraction for a count": (("dim = 3", "dim = 3.5"), "[data] dim: got 3.5; allowed: a whole number."),
    "true for a number": (("scale = 0.1", "scale = true"), "[algorithm] scale: got True; allowed: a number."),
    "wrong literal": (
        ("scale = 0.1", 'scale = 1\nnoise = "cauchy"'),
        "got 'cauchy'; allowed: 'laplace', 'l2-laplace' or 'gaussian'.",
    ),
    "wrong type of step": (("step = {scale = 0.5}", 'step = "big"'), "[algorithm] step: got 'big'; allowed: a number"),
    "unknown key of a step": (("{scale = 0.5}", "{scale = 0.5, pwer = 1}"), "[algorithm] step pwer: got 1"),
    "value that is refused": (("{scale = 0.5}", "{scale = -1}"), "[algorithm] step scale: got -1.0"),
    "alias in a refusal": (("learners = 4", "learners = 0"), "[topology] learners: got 0"),
    "unknown kind": (('"ring"', '"rnig"'), "The nearest is 'ring'."),
    "kind missing": (('kind = "ring"\n', ""), "[topology] kind: got nothing; allowed: 'alternating',"),
    "unknown algorithm": (('"noisy_ogd"', '"nosy_ogd"'), "The nearest is 'noisy_ogd'."),
    "no seed": (("seed = 0", ""), "[simulate] seed: got nothing; allowed: a whole number. Add seed to [simulate]"),
    "two sources": (("dim = 3", 'dim = 3\nname = "digits"'), "[data]: got ['name', 'generator']; allowed: exactly one"),
    "no source": (('generator = "smooth-cycle-logistic"', ""), "[data]: got nothing; allowed: exactly one of name"),
    "learners twice": (("dim = 3", "dim = 3\nlearners = 4"), "[topology] settles learners."),
    "graph for a server": (
        ('"noisy_ogd"\nstep = {scale = 0.5}\nscale = 0.1', '"centralized_ogd"'),
        "[topology] kind: got 'ring'; allowed: 'server'. The algorithm centralized_ogd needs a server;",
    ),
    "graph for nobody": (
        ('"noisy_ogd"\nstep = {scale = 0.5}\nscale = 0.1', '"local_ogd"'),
        "allowed: 'server'. The algorithm local_ogd sends nothing: there is no graph;",
    ),
    "server for a graph": (('"ring"', '"server"'), "The algorithm noisy_ogd has no server: its learners talk to"),
    "unknown data set": (
        ('generator = "smooth-cycle-logistic"\ndim = 3', 'name = "xyz"'),
        "`gossamer datasets` lists them.",
    ),
    "not TOML": (("steps = 20", "steps = = 20"), "line 16"),
    "no steps at all": (("steps = 20", "steps = 0"), "[simulate] steps: got 0"),
    "unknown record": (("steps = 20", 'steps = 20\nrecord = ["gradients"]'), "[simulate] record: got ['gradients']"),
    "ragged matrix": (("learners = 4", "learners = 4\nweights = [[1.0], [0.5, 0.5]]"), "all of the same length"),
    "no such file": (('generator = "smooth-cycle-logistic"\ndim = 3', 'path = "nothing.csv"'), "no such file"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(case: str, tmp_path: Path) -> None:
    edit, text = REFUSALS[case]
    assert text in refusal(changed(tmp_path, edit))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert "no such file or directory" in refusal(tmp_path / "nothing.toml")


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    assert "UTF-8" in refusal(tmp_path / "bytes.toml")


def test_out_that_cannot_be_made(small: Path) -> None:
    result = gossamer_("run", small, "--out", small)
    assert result.exit_code == 2
    assert "--out" in result.stderr


def test_unknown_command() -> None:
    assert gossamer_("rum").exit_code == 2


def test_a_report_without_plotly_is_refused_before_anything_runs(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gossamer.reports.html.find_spec", lambda name: None)
    result = gossamer_("demo", "--out", tmp_path / "report")
    assert result.exit_code == 2
    assert "pip install 'gossamer[report]'" in result.stderr
    assert gossamer_("run", small).exit_code == 0  # without --out nothing is drawn


@pytest.mark.parametrize("columns", [80, 120])
def test_demo_command(demo: Demo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr("gossamer.cli.demo_command.play", lambda: demo)
    result = gossamer_("demo", "--out", tmp_path, columns=columns)
    assert result.exit_code == 0, result.output
    assert max(map(len, result.stdout.splitlines()[:-1])) <= columns
    shown = result.stdout.split()
    for row in demo.report.table.rows:
        assert set(" ".join(row).split()) <= set(shown)
    assert str(tmp_path / "report.html") in "".join(result.stdout.split("\n"))
    assert "Columns without an epsilon are not private" in " ".join(shown)
    assert (tmp_path / "report.html").stat().st_mode & 0o777 == 0o644  # all of it is public


def test_demo_tells_the_story(demo: Demo) -> None:
    """Every setting has a row and a part; what is private says so, and the rest does not."""
    assert [row[0].partition("\n")[0] for row in demo.report.table.rows] == [
        part.title.lower() for part in demo.report.parts
    ]
    for part in demo.report.parts:
        assert part.table is not None
        basis = {row[0]: row[-1] for row in part.table.rows}
        assert {basis[name] for name in basis if name.startswith("epsilon")} == {"proven"}
        assert basis["not private"] == "none"
        assert basis["as published, epsilon 8"] in ("published", "proven")
        assert {run.seed and len(run.seed) for name, run in part.runs.items() if "epsilon" in name} == {5}
    epsilons = [
        part.runs[f"epsilon {epsilon}"].guarantee.epsilon for part in demo.report.parts for epsilon in (8, 4, 1)
    ]
    np.testing.assert_allclose(epsilons, [8, 4, 1] * 5, rtol=1e-6)
    assert demo.verdict.count(". ") == 1  # two sentences


def test_no_sample_of_the_demo_is_shown_twice(demo: Demo) -> None:
    for part in demo.report.parts:
        record = part.runs["epsilon 1"].guarantee
        assert record.occurrences == 1
        assert record.per_record().epsilon == pytest.approx(1.0)


def test_demo_gives_the_same_numbers_again(demo: Demo) -> None:
    again = demonstration._runs(demonstration.experts(), SHARE)
    for name, run in again.items():
        np.testing.assert_array_equal(run.losses, demo.report.parts[-1].runs[name].losses)


def write_data(tmp_path: Path, y: list[int], *edits: tuple[str, str]) -> Path:
    """The small file, on 24 records of a file with these labels, again and again."""
    x = np.random.default_rng(0).random((24, 2))
    np.savez(tmp_path / "mine.npz", x=x, y=np.resize(y, 24))
    return changed(tmp_path, ('generator = "smooth-cycle-logistic"\ndim = 3', f'path = "{tmp_path}/mine.npz"'), *edits)


def test_more_steps_than_samples_name_the_passes(tmp_path: Path) -> None:
    said = "at most 6, with passes = 1. Set passes = 4 in [data], which shows every learner its samples 4 times."
    assert f"[simulate] steps: got 20; allowed: {said}" in refusal(write_data(tmp_path, [0, 1]))
    result = gossamer_("run", write_data(tmp_path, [0, 1], ("seed = 1", "seed = 1\npasses = 4")), "--steps", 25)
    assert result.stderr.startswith("error: --steps: got 25; allowed: at most 24, with passes = 4. Set passes = 5 in")
    assert gossamer_("run", write_data(tmp_path, [0, 1], ("seed = 1", "seed = 1\npasses = 4"))).exit_code == 0


def test_labels_that_are_all_the_same_are_said_aloud(tmp_path: Path) -> None:
    steps = ("steps = 20", "steps = 6")
    warned = "warning: all labels are 1: there is nothing to learn.\n"
    assert warned in gossamer_("run", write_data(tmp_path, [1], steps)).stderr
    assert "labels" not in gossamer_("run", write_data(tmp_path, [0, 1], steps)).stderr


def test_the_number_of_classes_is_not_counted_from_private_labels(tmp_path: Path) -> None:
    """Else one record would say how long all decisions and messages are."""
    softmax = ('kind = "logistic"', 'kind = "softmax"')
    said = "[problem] classes: got nothing; allowed: a whole number. Say how many kinds of labels there can be"
    assert said in refusal(write_data(tmp_path, [0, 1], ("steps = 20", "steps = 6"), softmax))


def private(tmp_path: Path, budget: str) -> Path:
    old = '"noisy_ogd"\nstep = {scale = 0.5}\nscale = 0.1'
    return changed(tmp_path, (old, f'"pd_ogd"\nstep = 0.01\nclip = 1.0\nnoise = "gaussian"\nbudget = {{{budget}}}'))


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ("epsilon = 1e6, delta = 1e-5", ["epsilon 1,000,000 is no privacy to speak of"]),
        ("epsilon = 8, delta = 0.5", ["delta 0.5 is large"]),
        ("epsilon = 1e-9, delta = 1e-9", ["that of never learning. The noise is larger than what the data say"]),
        ("epsilon = 15, delta = 1e-5", []),
    ],
)
def test_what_makes_little_sense_is_said_aloud_and_runs(tmp_path: Path, budget: str, said: list[str]) -> None:
    result = gossamer_("run", private(tmp_path, budget), "--steps", 1000)
    assert result.exit_code == 0, result.output
    lines = result.stderr.splitlines()
    assert len(lines) == len(said), lines
    for line, text in zip(lines, said, strict=True):
        assert line.startswith("warning: ")
        assert text in line


def test_calibrate_says_what_makes_little_sense() -> None:
    result = gossamer_("calibrate", "pd_ogd", "--epsilon", 50, "--delta", 0.1, "--option", "noise=gaussian")
    assert result.exit_code == 0, result.output
    assert [line.split()[:3] for line in result.stderr.splitlines()] == [
        ["warning:", "epsilon", "50"],
        ["warning:", "delta", "0.1"],
    ]


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("where", "arguments", "said"),
    [
        ("gossamer.cli.run.Experiment.run", ("run", "small.toml"), "Stopped. Nothing was saved.\n"),
        ("gossamer.cli.demo_command.play", ("demo",), "Stopped.\n"),
        ("gossamer.cli.audit.carry_out", ("audit", "pd_ogd", "--seed", 1), "Stopped.\n"),
    ],
)
def test_control_c_is_said_aloud(
    small: Path, monkeypatch: pytest.MonkeyPatch, where: str, arguments: tuple[object, ...], said: str
) -> None:
    monkeypatch.chdir(small.parent)
    monkeypatch.setattr(where, interrupted)
    result = gossamer_(*arguments)
    assert (result.exit_code, result.stderr) == (130, said)


def test_control_c_says_that_the_checkpoint_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "kept.npz"
    file = changed(tmp_path, ("steps = 20", f'steps = 20\ncheckpoint = "{kept}"'))
    assert gossamer_("run", file).exit_code == 0
    monkeypatch.setattr("gossamer.cli.run.Experiment.run", interrupted)
    assert gossamer_("run", file).stderr == f"Stopped. {kept} is kept: the same command goes on from there.\n"


def test_a_study_says_how_far_it_is_and_what_control_c_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def number(place: int) -> Measured:
        def compute() -> dict[str, int]:
            if place == 2:
                raise KeyboardInterrupt
            return {"number": place}

        return Measured(f"number {place}", {"number": place}, compute)

    study = Study("Numbers", [Section("all", "All", lambda: {place: number(place) for place in range(4)}, figure=1)])
    monkeypatch.setattr("gossamer.experiments.papers.paper_000.study", lambda asked: study)
    result = gossamer_("reproduce", "000", "--out", tmp_path, columns=200)
    assert result.exit_code == 130
    assert result.stderr.splitlines() == [
        "0 of 4: number 0",
        "1 of 4, about a minute left: number 1",
        "2 of 4, about a minute left: number 2",
        f"Stopped. 2 cells kept in {tmp_path / 'cells'}: the same command goes on from there.",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("999",), "paper: got '999'; allowed: '000' or '001'"),
        (("000", "--figure", 9), "--figure: got 9; allowed: one of the figures 1"),
        (("000", "--quick", "--full"), "--full: got 'and --quick'; allowed: one of the two"),
    ],
)
def test_what_cannot_be_reproduced_is_refused(tmp_path: Path, arguments: tuple[object, ...], message: str) -> None:
    result = gossamer_("reproduce", *arguments, "--out", tmp_path, columns=200)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_directory_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = gossamer_("reproduce", "000", "--stand-in", "--out", tmp_path / "file", columns=200)
    assert result.exit_code == 2
    assert "--out" in result.stderr
    assert "a directory that can be made" in result.stderr


def test_control_c_in_a_terminal(tmp_path: Path) -> None:
    """A real signal, while JAX is at work."""
    file = changed(tmp_path, ("steps = 20", "steps = 100_000_000"))
    command = [sys.executable, "-m", "gossamer", "run", str(file)]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it, and their children
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            assert process.stdout.readline().startswith("noisy_ogd")  # it runs, with Python's handler of SIGINT
            while "data:" not in process.stdout.readline():
                pass
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()  # a run that goes on would be waited for
    assert process.returncode == 130
    assert said.splitlines()[-1].startswith("Stopped.")


def test_configuration_errors_are_typed(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(changed(tmp_path, ("learners = 4", "learners = -1")))
    assert caught.value.field == "[topology] learners"
