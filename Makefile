# Daily commands. Everything is installed below .venv; `make run` and `make test` do the set-up they need.

# The first of these that is new enough. Another one: make setup PYTHON=/path/to/python3.12
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
# One a core: tests wait more than they compute, so more are faster, and also busy enough to be late now and then.
PYTEST_WORKERS ?= 2
UV ?= uv
BIN := .venv/bin
READY := .venv/.set-up
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install

.PHONY: run test setup lint format check bench lock audit-dependencies clean

run: setup ## the whole product in the foreground; options: make run ARGS="--hosts 5"
# Tied to make, so that a kill of make ends everything, too.
	@$(BIN)/python -I -S warmroute/embedded/leash.py --signal 15 -- $(BIN)/warmroute up $(ARGS)

test: check ## lint, types and the whole test suite; one part: make test ARGS=tests/contract
	$(BIN)/python -m pytest -n $(PYTEST_WORKERS) $(ARGS)

check: lint
	$(BIN)/mypy

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## the benchmarks; one part: make bench PART=name
	@test -d benchmarks || { echo "This version has no benchmarks: there is no directory benchmarks/." >&2; exit 2; }
	$(BIN)/python -m benchmarks $(PART)

setup: $(READY)

# pip checks every file against its hash; build.lock holds what builds the project itself.
$(READY): requirements/dev.lock requirements/build.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed and none was found on PATH." >&2; exit 2; }
	@echo "Setting up .venv with the locked dependencies (once; about a minute)"
	@$(PYTHON) -m venv .venv
	@$(PIP) --require-hashes -r requirements/build.lock -r requirements/dev.lock
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

lock: ## choose new versions of all dependencies (needs uv)
	for part in dev advise controlplane dataplane host; do \
		$(UV) pip compile pyproject.toml --extra $$part --upgrade $(LOCK) \
			$$(test $$part = dev || echo -c requirements/dev.lock) -o requirements/$$part.lock || exit 1; done
	echo 'setuptools>=77' | $(UV) pip compile - --upgrade $(LOCK) -o requirements/build.lock

audit-dependencies: ## known vulnerabilities of what the lock files name (asks PyPI's advisory service; not part of make test)
# In an environment of its own: a scanner's own dependencies are not the product's. --strict: unknown is not unharmed.
	@test -x .audit/bin/pip-audit || { $(PYTHON) -m venv .audit && .audit/bin/python -m pip --disable-pip-version-check \
		--quiet install pip-audit==$(PIP_AUDIT); }
# A release with known vulnerabilities: a service that does not name them says nothing of others, either.
	@echo jinja2==2.4.1 > .audit/known.txt
	@if .audit/bin/pip-audit --disable-pip --no-deps -r .audit/known.txt 2>&1 | grep -q 'Found [1-9]'; then \
		for part in dev advise controlplane dataplane host build; do \
			.audit/bin/pip-audit --strict --disable-pip --require-hashes -r requirements/$$part.lock || exit 1; \
		done; \
	else \
		echo "Dependencies are not scanned: PyPI's advisory service is not reached from here." >&2; exit $(UNREACHED); \
	fi

PIP_AUDIT := 2.10.1
# The exit code when nothing could be looked up; continuous integration that reaches no advisories sets it to 0.
UNREACHED ?= 1
LOCK := --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header

clean: ## remove what set-up, tests and builds leave; not the data of `make run`
	rm -rf .venv .audit .mypy_cache .pytest_cache .ruff_cache .hypothesis build *.egg-info
