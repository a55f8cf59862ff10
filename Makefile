# Everything from Python 3.11 and make: each target sets up what it needs in .venv and reuses it next time.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-as-users test-long test-oldest test-newest test-robots test-qdax docs check format bench-arm clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "lqd needs Python 3.11 or newer: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) -e .
	@touch $@

$(VENV)/.dev: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) -e '.[dev]'
	@touch $(VENV)/.core $@

demo: $(VENV)/.core ## three hand-made rules and a learned one on a robot arm, a table and a picture
	$(BIN)/lqd demo

WORKERS := 2
SPREAD = -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test: $(VENV)/.dev ## the fast suite; it compiles quickly, not well
	$(BIN)/python -m pytest $(SPREAD)

# The golden numbers and kills, which run only here; and a second time what depends on the compiler.
AS_USERS := tests/golden tests/evolution/test_numbers.py tests/search/test_saving.py tests/tasks/bbob/test_functions.py \
  tests/rules/test_ribs_parity.py $(addprefix tests/rules/learned/,test_rule.py test_recipe2.py test_precision.py \
  test_dispatch.py::test_every_kind_of_size) tests/test_compilation.py tests/test_faults.py \
  tests/rules/learned/test_dispatch.py::test_the_tests_of_the_plain_rule_pass_with_the_kernel

test-as-users: $(VENV)/.dev ## golden numbers, kills and resuming, equal bits, kernels: compiled as users do
	$(BIN)/python -m pytest $(SPREAD) --as-users $(AS_USERS)

test-slow: $(VENV)/.dev ## part of CI: the code of docs and notebooks, several processes, and what else takes long
	$(BIN)/python -m pytest $(SPREAD) --slow

test-long: $(VENV)/.dev ## the fast suite and the slow tests, compiled as users do
	$(BIN)/python -m pytest -n $(WORKERS) --long

# A wheel in an environment of its own: it must work by itself, then with the tests' tools beside it.
TESTS := tests
TOOLS := [test]
define test-with # $(1): a name, $(2): what pip is told
	rm -rf build/$(1) && $(PYTHON) -m venv build/$(1)/venv
	build/$(1)/venv/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir build/$(1) .
	build/$(1)/venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile $(2) build/$(1)/*.whl
	cd build/$(1) && venv/bin/python -W error ../../tests/smoke.py
	build/$(1)/venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile $(2) $(if $(filter [%,$(TOOLS)),"$$(echo build/$(1)/*.whl)$(TOOLS)",$(TOOLS))
	LQD_TEST_CACHE=$(CURDIR)/build/$(1)/cache build/$(1)/venv/bin/python -m pytest $(SPREAD) $(TESTS)
endef

test-oldest: ## a wheel and the suite with the oldest versions that are claimed; TESTS=... for a part of it
	$(call test-with,oldest,-c constraints-oldest.txt)

test-newest: ## a wheel and the suite with the newest versions there are
	$(call test-with,newest,--upgrade)

# Environments of their own, kept in build/: what they bring along does not change what the other tests see.
build/%/venv: pyproject.toml constraints.txt
	rm -rf $@ && $(PYTHON) -m venv $@

WITH = build/$(1)/venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
TESTED_WITH = LQD_TEST_CACHE=$(CURDIR)/build/$(1)/cache build/$(1)/venv/bin/python -m pytest

build/robots/.ready: build/robots/venv
	$(call WITH,robots) -e '.[brax,bench]' pytest
	@touch $@

build/qdax/.ready: build/qdax/venv # without the simulators that QDax asks for, with what its parts need that we use
	$(call WITH,qdax) -e . chex flax optax scikit-learn pytest
	$(call WITH,qdax) --no-deps qdax
	@touch $@

test-robots: build/robots/.ready ## the tests that need brax, in an environment of their own
	$(call TESTED_WITH,robots) tests/tasks/test_brax.py tests/bench/test_again.py tests/meta/families -k 'not families or robots'

test-qdax: build/qdax/.ready ## the tests that need QDax, in an environment of their own
	$(call TESTED_WITH,qdax) tests/integrations/test_qdax.py tests/integrations/test_qdax_emitter.py
	$(call TESTED_WITH,qdax) --as-users tests/golden tests/test_readme.py -k qdax

$(VENV)/.docs: $(VENV)/.core
	$(PIP) -e '.[docs]'
	@touch $@

docs: $(VENV)/.docs ## this documentation as a site, in site/index.html; no link in it is dead
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/python docs/check_links.py
	$(BIN)/python docs/check_links.py site

check: $(VENV)/.dev ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev ## apply lint fixes and formatting
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench-arm: $(VENV)/.dev ## speed against pyribs and QDax on the arm (QDax where it is installed)
	$(BIN)/python benchmarks/arm.py

clean: ## remove the environment and caches
	rm -rf $(VENV) build .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis site
