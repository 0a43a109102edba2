# `make` prints what there is. Every recipe is a call; logic lives in the programs it calls.
SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The clients' generated parts are not in the repository; this one is written last.
CLIENTS := onsale/client/fan_calls.py
export PYTHONSAFEPATH := 1
unexport PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK := 1
.DEFAULT_GOAL := help
.PHONY: help docs docs-serve picture shop run test slowest proof coverage matrix drills fast check format lint types imports bench night deploy-config package image sbom pages pages-check boards api-documents lock clean

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(VENV)/run.stamp ## the whole suite on http://localhost:8000, with two on-sales open
	@$(BIN)/python -m onsale up --demo $(ARGS)

# Without papers, edge gates and HTTP clients, which need seconds each.
FAST := tests/gateway tests/inventory tests/notifier tests/orders tests/queue tests/shared/concurrency \
  tests/shared/runtime tests/shared/security features --ignore tests/orders/delivery \
  --ignore features/forward_auth/tests/edge
NO_ENGINES := not redis and not postgres and not journey and not browser and not proof
fast: $(VENV)/dev.stamp ## seconds: the tests that need no engine
	@$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "$(NO_ENGINES)" -p no:schemathesis \
	  --hypothesis-profile "few examples" $(FAST) $(ARGS)

test: $(VENV)/dev.stamp ## minutes: all that a change can break, on real engines
	@$(BIN)/python -m pytest -q -n 4 --dist loadscope $(ARGS) || $(BIN)/python tests/support/runs/rerun_failed.py

slowest: $(VENV)/dev.stamp ## the slowest hundred tests of the last whole `make test`, and the time of each file, folder and tier
	@$(BIN)/python tests/support/runs/durations.py

proof: $(VENV)/dev.stamp ## hours: every test and drill, models, random faults, bad input, held load; ARGS="--minutes 2 --seed 7" is a slice
	@PYTHONPATH=. $(BIN)/python -m proof $(ARGS)

coverage: $(VENV)/dev.stamp ## every test but the drills, and how much of the code they ran; the floor is in pyproject.toml
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest -q -n 3 --dist loadscope -m "" tests features proof --ignore proof/drills $(ARGS) || $(BIN)/coverage run tests/support/runs/rerun_failed.py
	@$(BIN)/coverage combine -q
	@$(BIN)/coverage report

matrix: $(VENV)/dev.stamp ## the tests of `make test` on every supported Python and every engine found here
	@PYTHONPATH=. $(BIN)/python -m tools.matrix $(ARGS)

drills: $(VENV)/dev.stamp ## parts killed in the middle of sales; writes docs/reference/recovery.md
	@$(BIN)/python -m pytest proof/drills -m "" -rA --recoveries $(ARGS)

check: $(VENV)/dev.stamp ## everything that CI runs; what reads the code runs beside the tests
	@$(MAKE) --no-print-directory -j 2 --output-sync=line test lint types imports

format: $(VENV)/dev.stamp ## rewrite the code in its own style
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

lint: $(VENV)/dev.stamp ## style and mistakes
	@$(BIN)/ruff format --check . && $(BIN)/ruff check .

TYPED := shared services onsale features docs/examples/acme-onsale/acme_onsale
types: $(VENV)/dev.stamp ## mypy, strict, of the product; TYPED="tests proof bench tools" is the rest, which `make proof` reads
	@$(BIN)/mypy $(TYPED)

imports: $(VENV)/dev.stamp ## who may import whom
	@$(BIN)/lint-imports

bench: $(VENV)/dev.stamp ## measure both sides, print ratios, write bench/RESULTS.md
	@PYTHONPATH=. $(BIN)/python -m bench $(ARGS)

night: $(VENV)/dev.stamp ## 500,000 fans and 10,000 tickets on this machine, start to end; ARGS="--fans 20000" takes seconds
	@PYTHONPATH=. $(BIN)/python -m bench.night $(ARGS)

# The same input gives the same bytes: the time in both files is that of the last commit.
package: $(VENV)/dev.stamp ## dist/onsale-*.whl and .tar.gz
	@rm -rf dist build *.egg-info
	@SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} $(BIN)/python -m build -q --no-isolation

BUILDER ?= docker build
image: ## the image onsale:local from deploy/Dockerfile; BUILDER="buildah bud" builds it without a daemon
	@$(BUILDER) -f deploy/Dockerfile -t onsale:local .

sbom: $(VENV)/dev.stamp ## sbom.json (CycloneDX) and docs/reference/licences.md, from the lock files
	@PYTHONPATH=. $(BIN)/python -m tools.licences sbom.json docs/reference/licences.md

deploy-config: $(VENV)/run.stamp ## files for nginx, HAProxy, Prometheus and Alertmanager, from the code
	@$(BIN)/python -m onsale deploy-config

pages: $(CLIENTS) ## pages/dist and console/pages/dist of features/, from web/ (needs node; users do not)
	@cd web && npm ci --silent --ignore-scripts && npx tsc --noEmit && node build.mjs

pages-check: $(VENV)/dev.stamp ## the committed pages match their manifest and, where node is, what web/ makes
	@if command -v node >/dev/null && command -v npm >/dev/null; then cd web && npm ci --silent --ignore-scripts; \
	  else echo "pages-check: no node and npm here: the build is not repeated, only the manifest is checked"; fi
	@$(BIN)/python -m pytest -q -rs tests/test_built_pages.py

shop: $(VENV)/dev.stamp ## 2,000 fans at a pretix behind the gate; writes figures and pictures of docs/use/beside-a-shop.md
	@ONSALE_RECORD=1 $(BIN)/python -m pytest proof/deploy/test_beside_a_shop.py -m "" $(ARGS)

pictures: $(VENV)/dev.stamp ## docs/images/*.png and the recording, during simulated sales (needs Chromium, three minutes)
	@$(BIN)/python -m tests.browser.pictures.console && $(BIN)/python -m tests.browser.pictures.fans

boards: $(VENV)/dev.stamp ## deploy/grafana/*.json from the table in tools/boards.py
	@PYTHONPATH=. $(BIN)/python -m tools.boards

picture: ## docs/images/architecture.svg from docs/images/architecture.dot (needs graphviz)
	@dot -Tsvg docs/images/architecture.dot -o docs/images/architecture.svg

api-documents: $(VENV)/run.stamp ## problems, OpenAPI documents, the clients' generated parts, docs/reference and the runbook
	@PYTHONPATH=. $(BIN)/python -m tools.api_documents

docs: $(VENV)/dev.stamp ## the documentation site, in build/site; a broken link is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --clean

docs-serve: $(VENV)/dev.stamp ## the documentation site on http://127.0.0.1:8009, made again when a page changes
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve -a 127.0.0.1:8009

LOCK := uv pip compile -q --universal --generate-hashes --no-header --no-annotate --python-version 3.11 pyproject.toml
# A lock file names every package, so `--no-deps` installs exactly it: a release of today cannot be asked for instead.
lock: ## new lock files: production, `make run`, development (needs uv)
	@$(LOCK) --group build -o requirements.lock
	@$(LOCK) --group build --extra embedded -o requirements-embedded.lock
	@$(LOCK) --group dev --all-extras -o requirements-dev.lock

clean: ## forget the virtual environment, caches and local data
	@rm -rf $(VENV) .onsale .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info build dist

$(BIN)/python:
	@$(PYTHON) -m venv $(VENV)

# Order-only below: a changed contract makes the clients' parts anew and installs nothing again.
$(CLIENTS): $(wildcard tools/clients/*.py features/pages/openapi/*.json shared/contracts/*/*.py features/*/*.py) | $(BIN)/python
	@PYTHONPATH=. $(BIN)/python -m tools.clients

$(VENV)/run.stamp: requirements-embedded.lock pyproject.toml | $(CLIENTS)
	@echo "Installing what the suite needs (once) …"
	@test -e $(VENV)/dev.stamp || $(BIN)/pip install -q --no-deps --require-hashes -r requirements-embedded.lock
	@$(BIN)/pip install -q --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/dev.stamp: requirements-dev.lock pyproject.toml | $(CLIENTS)
	@echo "Installing what the tests need (once) …"
	@$(BIN)/pip install -q --no-deps --require-hashes -r requirements-dev.lock
	@$(BIN)/pip install -q --no-deps --no-build-isolation -e .
	@touch $@
