# Every target sets up what it needs: a Python >= 3.11 and a Java >= 17 on the PATH are enough.
BIN := .venv/bin
STAMP := .venv/.stamp
# Lines of an outdated pip, or of a tool that wants to be updated, help nobody here.
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help venv test quick check demo demo-failover bench bench-whole campaign mutants lock sbom clean

help:
	@echo "make demo       two brokers, 1 GB, kill -9 in the middle, and the proof that nothing is wrong"
	@echo "make demo-failover  the source is killed under load, and producers and consumers move to the target"
	@echo "make test       all tests, tier by tier (TIERS=\"pure kafka\" for some)"
	@echo "make quick      the pure tests that a change can affect, and the tidy ones"
	@echo "make check      ruff, pyright, import-linter"
	@echo "make bench      four questions in a short form, ten minutes; nothing is kept"
	@echo "make bench-whole  all of them, some hours; kept in bench/results and docs/measurements.md"
	@echo "make campaign   the long form of the fault tests"
	@echo "make mutants    the rules of the lane switched off one by one, and how often the simulator notices"
	@echo "make lock       resolve the dependencies anew"
	@echo "make sbom       write sbom.json, the list of all packages that mirrord needs (CycloneDX)"
	@echo "make clean      remove what the other targets made here"

venv: $(STAMP)

$(STAMP): requirements-dev.lock
	@.ci/setup
	@touch $@

test: $(STAMP)
	@$(BIN)/python -m tests.tiers $(TIERS)

quick: $(STAMP)
	@$(BIN)/python -m tests.quick

check: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/lint-imports

demo: $(STAMP)
	@$(BIN)/python -m bench.demo

demo-failover: $(STAMP)
	@$(BIN)/python -m bench.demo_failover

bench: $(STAMP)
	@$(BIN)/python -m bench.run --short

bench-whole: $(STAMP)
	@$(BIN)/python -m bench.run

campaign: $(STAMP)
	@$(BIN)/python -m bench.campaign

mutants: $(STAMP)
	@$(BIN)/python -m bench.mutants

# UV_NO_CONFIG and the --no-emit options: a lock names versions and hashes, never the place that they came from.
LOCK := UV_NO_CONFIG=1 $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --upgrade \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"

lock: $(STAMP)
	$(LOCK) pyproject.toml --output-file requirements.lock
	$(LOCK) pyproject.toml --group dev --constraint requirements.lock --output-file requirements-dev.lock
	$(LOCK) --group build --constraint requirements-dev.lock --output-file requirements-build.lock
	@touch $(STAMP)

sbom: $(STAMP)
	@$(BIN)/python -m venv --clear .cache/build
	@.cache/build/bin/pip install --quiet --require-hashes --requirement requirements-build.lock
	@PYTHONWARNINGS=ignore .cache/build/bin/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible --of JSON \
		-o sbom.json requirements.lock
	@echo "written to sbom.json"

clean:
	rm -rf .venv .cache sbom.json .hypothesis .import_linter_cache .pytest_cache .ruff_cache build dist logs
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
