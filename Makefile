# `make` lists the targets. Targets that run something create or update .venv first.

VENV      := .venv
BIN       := $(VENV)/bin
PY        := $(BIN)/python
STAMP     := $(VENV)/.installed
INSTALL   := $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt
SCHEDULES ?= 2000
FUZZ_INPUTS ?= 1000000

.DEFAULT_GOAL := help
.PHONY: help env demo test check bench simulate fuzz clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

env: $(STAMP) ## create .venv with the pinned versions, the Delta jars, and Java if there is none

demo: $(STAMP) ## replicate a year of flights with crashes, between two sites and between four
	$(BIN)/spark-wan demo
	$(BIN)/spark-wan demo --sites 4

CHANNELS  ?= directory
KINDS     := $(if $(filter all,$(CHANNELS)),directory s3 kafka,$(CHANNELS))
WITH_SPARK := tests/cluster/test_cluster.py tests/integration tests/crash

# In this order: what SPARK_WAN_TEST_MINUTES skips on a slow machine is at the end.
EVERYTHING := $(addprefix tests/,unit fuzz simulation crash integration cluster)

# Several processes, each with its own Spark session (tests/conftest.py sets the number).
define run_tests
	SPARK_WAN_TEST_CHANNEL=$(1) $(PY) -m pytest --numprocesses auto --dist loadfile \
	    --no-loadscope-reorder $(or $(TESTS),$(if $(filter directory,$(1)),$(EVERYTHING),$(WITH_SPARK)))

endef

test: $(STAMP) ## run all tests, or TESTS="FILE ..."; CHANNELS=all: those with Spark also on s3, kafka
	$(foreach kind,$(KINDS),$(call run_tests,$(kind)))

check: $(STAMP) ## check format, lint, types and the layers of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --cache-dir .cache/import_linter

bench: $(STAMP) ## measure speed beside a plain MERGE and a handwritten pipeline
	$(PY) -m bench

simulate: $(STAMP) ## run SCHEDULES=n (2000) random schedules of crashes, delays, duplicates
	SPARK_WAN_SCHEDULES=$(SCHEDULES) $(PY) -m pytest tests/simulation --timeout 0

fuzz: $(STAMP) ## read FUZZ_INPUTS=n (1000000) damaged frames, manifests, acks, topologies
	SPARK_WAN_FUZZ_INPUTS=$(FUZZ_INPUTS) $(PY) -m pytest -s tests/fuzz --timeout 0

clean: ## remove the environment, caches and all output of runs
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf .import_linter_cache *.egg-info build dist
	rm -rf spark-warehouse metastore_db derby.log artifacts demo-data bench/scratch bench/out
	find . -type d -name __pycache__ -prune -exec rm -rf {} +

# The pinned versions have wheels for Python 3.11 to 3.14, so these come first.
define FIND_PYTHON
pick() { \
    for p in $${PYTHON:-python3 python3.13 python3.12 python3.11 python3.14 python3.10 python}; do \
        "$$p" -c "import sys; sys.exit(not ($$1))" 2>/dev/null && { echo "$$p"; return; }; \
    done; return 1; \
}; \
python=$$(pick '(3, 11) <= sys.version_info < (3, 15)' || pick '(3, 10) <= sys.version_info') || { \
    echo "No Python 3.10 or newer found. Install one, or name it:" \
        "make env PYTHON=/path/to/python3" >&2; \
    exit 1; \
}
endef

$(PY):
	@$(FIND_PYTHON); \
	"$$python" -c 'import venv, ensurepip' 2>/dev/null || { \
	    echo "$$python cannot create environments: its modules venv and ensurepip are missing." >&2; \
	    echo "On Debian and Ubuntu: apt-get install python3-venv." \
	        "Or name another: make env PYTHON=/path/to/python3" >&2; \
	    exit 1; \
	}; \
	echo "$$python -m venv $(VENV)"; "$$python" -m venv $(VENV)

$(STAMP): setup.cfg constraints.txt | $(PY)
	$(INSTALL) -e '.[spark,dev,demo]'
	@$(PY) -m spark_wan.local java >/dev/null 2>&1 || { \
	    echo "No Java 17 or newer found: installing one from PyPI."; \
	    $(INSTALL) -e '.[java]'; \
	}
	$(PY) -m spark_wan.local prepare
	@touch $@
