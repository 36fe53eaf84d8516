# Every target makes its own .venv first; what it needs is Python >= 3.11 and make.

.DEFAULT_GOAL := help
SHELL := /bin/sh
PY := .venv/bin/python
SERVE ?= 1
ARGS ?=

.PHONY: help test lint coverage demo docs races crash contract q2 newcomer \
        bench-splitting matrix prove prove-teeth peers-run

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo '  PYTHON=python3.12           makes .venv with that Python'
	@echo '  ARGS="-k splitting -x"      goes to pytest'
	@echo '  OUTBOX_TEST_POSTGRES, OUTBOX_TEST_MARIADB   URLs of other servers'
	@echo '  OUTBOX_TEST_REQUIRE=all     makes a database that does not answer an error'

test: .venv/.ready  ## Run the tests on SQLite and on the servers that answer
	@$(PY) tools/run_tests.py $(ARGS)

lint: .venv/.ready  ## Check style, types, import directions and migrations
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports
	$(PY) manage.py makemigrations --check --dry-run

coverage: .venv/.ready  ## Run the tests measured, then hold the two bounds
	@$(PY) tools/run_tests.py --coverage $(ARGS)

demo: .venv/.ready  ## Show the whole job on SQLite (SERVE=0 ends instead of serving)
	@SERVE=$(SERVE) $(PY) -m example_project.demo

docs: .venv/.ready  ## Build the documentation into build/docs, warnings are errors
	@$(PY) -m pip --disable-pip-version-check --quiet install --group docs
	@$(PY) -m sphinx -W -n --keep-going -q -b html -d build/doctrees docs build/docs
	@echo "docs: build/docs/index.html"

races: .venv/.ready  ## Repeat the race tests to their full figures
	@OUTBOX_RACES=full $(PY) tools/run_tests.py -m races_full -n 0 --timeout 3600 $(ARGS)

crash: .venv/.ready  ## Kill a process at every step of every scenario, on every database
	@OUTBOX_CRASH=$${OUTBOX_CRASH:-full} $(PY) tools/run_tests.py -m crash_full $(ARGS)

contract: .venv/.ready  ## Play every fault to every channel, print what each makes of it
	@$(PY) tools/contract.py $(ARGS)

q2: .venv/.ready  ## Kill real django-q2 clusters in the middle of a send, print what came of it
	@OUTBOX_RACES=full $(PY) tools/run_tests.py tests/contrib/test_qcluster.py -k killed -n 0 $(ARGS)

newcomer: .venv/.ready  ## Follow the README in a project made from nothing, look at it
	@$(PY) -m pytest -m newcomer --log-cli-level=INFO tests/newcomer $(ARGS)

bench-splitting: .venv/.ready  ## Time the cutting of long texts; prose needs 20 MB/s
	@$(PY) benchmarks/splitting.py --least 20 $(ARGS)

matrix: .venv/.ready  ## Run the tests on each pair of Python and Django found here
	@.venv/bin/nox $(ARGS)

prove: .venv/.ready  ## Kill 200 flushers on each database that answers, print the promises
	@$(PY) -m tests.prove prove $(ARGS)

prove-teeth: .venv/.ready  ## Plant defects, one after the other: the proof must name the promise
	@$(PY) -m tests.prove teeth $(ARGS)

peers-run: .venv/.ready  ## Kill a sender among ten messages, and by one poison: what became of them
	@$(PY) tools/run_tests.py tests/peers_run -n 0 $(ARGS)

.venv/.ready: pyproject.toml tools/make_venv.sh
	@PYTHON='$(PYTHON)' /bin/sh tools/make_venv.sh
