# Needs only Python 3.11+, make and pip. Everything goes into .venv.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test coverage bench benchmarks evidence wheel format clean

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[data,report,net,onnx,dev]'
	touch $@

demo: .venv/ready
	$(BIN)/gossamer demo

test: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest --numprocesses=auto --dist=loadfile

# Lines and branches that no test reaches. Watching every line takes the tests a tenth longer.
coverage: .venv/ready
	$(BIN)/pytest --cov --numprocesses=auto --dist=loadfile

bench: .venv/ready
	$(BIN)/python -m bench

# Measures everything that docs/benchmarks.md says, and writes it. Other frameworks go into .benchmarks. A quarter of an hour.
benchmarks: .venv/ready
	$(BIN)/python -m bench.benchmarks

# Numbers that pages quote: docs/evidence/ is written, the other tables are printed. Minutes.
evidence: .venv/ready
	$(BIN)/python -W ignore -m bench.choose
	$(BIN)/python -m bench.estimates
	$(BIN)/python -m bench.flow
	$(BIN)/python -W ignore -m bench.idle
	$(BIN)/python -m bench.life
	$(BIN)/python -m bench.page
	$(BIN)/python -W ignore -m bench.sites
	$(BIN)/python -m bench.wheel

wheel: .venv/ready
	rm -rf build
	$(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

format: .venv/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv .benchmarks
