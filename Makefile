# One command a chore, the same at the desk and in CI. A machine needs cargo and Python >= 3.11;
# the rest is installed into .venv (.venv-frameworks, .venv-bench), which every target makes and reuses.
#
#   make demo             kill a training run during a save, resume it, compare
#   make demo-tui         train on handwritten digits with the training screen
#   make test             every test that needs no framework, Rust and Python
#   make test-frameworks  the tests with torch and JAX, at pinned versions
#   make test-parallel    the Python tests that allow it, each in four threads at once
#   make model            the threads of the core in thousands of orders; make model MODEL_SCHEDULES=100000 in more
#   make model-mutations  break the core in one place after the other: the model notices each time
#   make valgrind         memcheck over the Rust tests of the rooms that copy, map and write memory
#   make free-threaded    compile the extension for free-threaded CPython, without such an interpreter
#   make torture          long campaigns of faults: flipped bits, kills, power cuts (an hour; root for some)
#   make lint             formatting, clippy, ruff, mypy, stubtest, the walls
#   make docs             the crate's documentation
#   make mutants          breaks the order of the commit in every way, and sees whether a test notices (an hour)
#   make bench            pitstop beside other checkpointers and the limits of the machine (a large first
#                         download, then about an hour); cargo bench measures single rooms
#   make fuzz             libFuzzer on each target in fuzz/, for FUZZ_SECONDS each (half an hour)
#   make fmt              format Rust and Python
#   make clean            remove what the other targets made (checkpoints under runs/ stay)
#
# Another interpreter: make PYTHON=python3.13 test. Arguments for pytest: make test PYTEST="-x -k restore".
# Arguments for the comparison: make bench BENCH="--quick". One campaign: make torture TORTURE=kills.py.

SHELL = /bin/sh
PYTHON ?= python3
PYTEST ?=
MODEL ?=
TORTURE ?= bit_flips.sh kills.py power_loss.py
MUTANTS ?=
BENCH ?= --plots docs --page docs/performance.md
CARGO ?= cargo
FUZZ_SECONDS ?= 1800

VENV = .venv
FRAMEWORKS = .venv-frameworks
PEERS = .venv-bench
BIN = $(VENV)/bin

# In CI a Cargo.lock that is out of date is an error.
LOCKED = $(if $(CI),--locked)

# Such as 3.11, or 3.13t for a free-threaded build. Part of the stamps' names, so that another
# interpreter gets an environment of its own instead of the old one's leftovers.
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2] + sys.abiflags)')

SOURCES := Cargo.toml Cargo.lock pyproject.toml $(wildcard README.md) $(wildcard build.rs) \
	$(shell find src python -type f ! -name '*.pyc' ! -name '*.so')
WHEELS = target/wheels/$(VERSION)

export PIP_DISABLE_PIP_VERSION_CHECK = 1
export PIP_NO_INPUT = 1

.PHONY: demo demo-tui test test-rust test-python test-frameworks test-parallel torture mutants model model-mutations valgrind free-threaded lint lint-rust lint-python walls docs bench fuzz fmt clean
.DELETE_ON_ERROR:

demo: $(VENV)/pitstop-$(VERSION)
	$(BIN)/python examples/demo.py

# Slowly enough to be looked at. Run it again, and it goes on where it was stopped or killed.
demo-tui: $(VENV)/pitstop-$(VERSION)
	$(BIN)/python examples/train_digits.py --screen --resume --dir runs/demo-tui --steps 3000 --pace 0.01

test: test-rust test-python

test-rust:
	$(CARGO) test $(LOCKED) --features cli,tui

test-python: $(VENV)/pitstop-$(VERSION)
	$(BIN)/pytest -m "not frameworks" $(PYTEST)

test-frameworks: $(FRAMEWORKS)/pitstop-$(VERSION)
	$(FRAMEWORKS)/bin/pytest -m frameworks $(PYTEST)

# Tests that share a directory between their threads, or change the process, are left out.
PARALLEL = $(addprefix tests/python/test_,front_retention.py names.py roundtrip_property.py schedule.py types.py)

test-parallel: $(VENV)/pitstop-$(VERSION)
	$(BIN)/python -m pip install --quiet pytest-run-parallel==0.10.0
	$(BIN)/pytest -m "not frameworks" --parallel-threads=4 \
		-o thread_unsafe_fixtures="$$(printf 'run\ncheckpointer')" $(PARALLEL) $(PYTEST)

# Settings of its own, so it is run where they are: tests/model/.cargo/config.toml. A seed that failed is tried
# again by MODEL_SEED=..., one test by MODEL=....
model:
	cd tests/model && $(CARGO) test $(LOCKED) $(MODEL) -- --show-output

model-mutations:
	$(PYTHON) tests/model/mutations.py $(MODEL)

# drd and helgrind do not know the locks of Rust, which are futexes, and take all that they guard for races.
valgrind:
	PROPTEST_CASES=8 $(CARGO) test $(LOCKED) --config '$(UNDER_VALGRIND)' --lib -- snapshot:: state:: storage::
	$(CARGO) test $(LOCKED) --config '$(UNDER_VALGRIND)' --test storage

UNDER_VALGRIND = target."cfg(all())".runner = ["valgrind", "--quiet", "--error-exitcode=9", "--leak-check=full", \
	"--errors-for-leak-kinds=definite", "--show-leak-kinds=definite"]

# In a folder of its own, for pyo3 is another one.
free-threaded:
	PYO3_CONFIG_FILE=$(CURDIR)/tests/free-threaded.txt $(CARGO) check $(LOCKED) --features python --lib \
		--target-dir target/free-threaded

torture: $(VENV)/pitstop-$(VERSION)
	@failed=; for script in $(TORTURE:%=tests/torture/%); do \
		echo "=== $$script ==="; \
		PATH="$(CURDIR)/$(BIN):$$PATH" CARGO="$(CARGO)" $$script || failed="$$failed $$script"; \
	done; test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

mutants:
	$(PYTHON) tests/mutations/run.py $(MUTANTS)

lint: lint-rust lint-python walls

lint-rust: $(VENV)/tools-$(VERSION)
	$(CARGO) fmt --check
	$(CARGO) clippy $(LOCKED) --all-targets -- -D warnings
	cd tests/model && $(CARGO) fmt --check && $(CARGO) clippy $(LOCKED) --all-targets -- -D warnings
	$(CARGO) clippy $(LOCKED) --all-targets --features cli -- -D warnings
	PYO3_PYTHON=$(CURDIR)/$(BIN)/python $(CARGO) clippy $(LOCKED) --all-targets --features python,cli,tui -- -D warnings

lint-python: $(VENV)/pitstop-$(VERSION)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict
	$(BIN)/python -m mypy.stubtest pitstop._native
	$(BIN)/python tests/mutations/run.py --check
	$(BIN)/python tests/model/mutations.py --check

# pyo3 lives in one room, clap in another, ratatui in a third, and a Rust user with default features gets no Python, no
# async runtime and no terminal code.
walls:
	@files=$$(find . \( -name target -o -name '.?*' \) -prune -o -name '*.rs' ! -path './src/python/*' -print) \
		|| exit 1; \
	grep -nw pyo3 $$files; \
	if [ $$? -ne 1 ]; then echo "wall: pyo3 may be named only under src/python/"; exit 1; fi
	@files=$$(find . \( -name target -o -name '.?*' \) -prune -o -name '*.rs' ! -path './src/cli/*' -print) \
		|| exit 1; \
	grep -nwE 'clap|terminal_size' $$files; \
	if [ $$? -ne 1 ]; then echo "wall: clap and terminal_size may be named only under src/cli/"; exit 1; fi
	@files=$$(find . \( -name target -o -name '.?*' \) -prune -o -name '*.rs' ! -path './src/renderer/tui/*' -print) \
		|| exit 1; \
	grep -nwE 'ratatui|crossterm' $$files; \
	if [ $$? -ne 1 ]; then echo "wall: ratatui may be named only under src/renderer/tui/"; exit 1; fi
	@tree=$$($(CARGO) tree $(LOCKED) -e normal --prefix none) || exit 1; \
	echo "$$tree" | grep -E '^(pyo3|tokio|ratatui|crossterm|clap|terminal)([-_][a-z0-9_-]*)? '; \
	if [ $$? -ne 1 ]; then echo "wall: the default features may not bring these"; exit 1; fi
	@echo "walls: they stand"

docs:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(LOCKED) --no-deps --features test-util,tui

bench: $(PEERS)/pitstop-$(VERSION) $(PEERS)/peers-$(VERSION)
	$(CARGO) build $(LOCKED) --release --example limits
	$(PEERS)/bin/python -W ignore benches/compare.py $(BENCH)

fuzz:
	for target in manifest header checkpoint; do fuzz/run $$target $(FUZZ_SECONDS) || exit 1; done

fmt: $(VENV)/tools-$(VERSION)
	$(CARGO) fmt
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

clean:
	$(CARGO) clean
	rm -rf fuzz/target $(VENV) $(FRAMEWORKS) $(PEERS) .pytest_cache .mypy_cache .ruff_cache .hypothesis

# An environment is made anew when its requirements, or the interpreter, change.
$(VENV)/tools-$(VERSION): tests/requirements.txt
$(FRAMEWORKS)/tools-$(VERSION): tests/requirements.txt tests/requirements-frameworks.txt
$(PEERS)/tools-$(VERSION): benches/requirements.txt

%/tools-$(VERSION):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "pitstop needs Python >= 3.11: make PYTHON=... names one")'
	$(PYTHON) -m venv --clear $*
	$*/bin/python -m pip install --quiet -r $(lastword $^)
	touch $@

# One wheel, built as a user would get it, for all environments: the tests run on what is installed.
$(WHEELS)/built: $(VENV)/tools-$(VERSION) $(SOURCES)
	rm -rf $(WHEELS)
	$(BIN)/maturin build $(LOCKED) --release --interpreter $(CURDIR)/$(BIN)/python --out $(WHEELS)
	touch $@

%/pitstop-$(VERSION): %/tools-$(VERSION) $(WHEELS)/built
	$*/bin/python -m pip install --quiet --no-deps --force-reinstall $(WHEELS)/*.whl
	touch $@

# A peer that cannot be installed is left out, and the report says so.
$(PEERS)/peers-$(VERSION): $(PEERS)/tools-$(VERSION) benches/peers.txt
	grep -v '^#' benches/peers.txt | while read peer; do \
		$(PEERS)/bin/python -m pip install --quiet -c benches/requirements.txt "$$peer" || echo "left out: $$peer"; \
	done
	touch $@
