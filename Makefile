# Two commands: `make` builds everything and grades the sample class, `make test` proves it.
# Windows, or no make: README.md says the same steps in words.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
SITE := build/book/_build/html
ASSIGNMENTS := $(notdir $(patsubst %/,%,$(sort $(wildcard solutions/*/))))
SAMPLE := $(notdir $(patsubst %/,%,$(sort $(wildcard tests/class/downloads/*/))))
PORT ?= 8000

.DEFAULT_GOAL := course
.PHONY: course book pdf release grade student-edition serve test bench fairness clean help

course: release book grade ## Build the exercises and the book, grade the sample class (the default)
	@echo
	@echo "The book:       $(SITE)/index.html   (or: make serve)"
	@echo "The gradebook:  build/class/gradebook.db   (to look inside: $(BIN)/jupyter lab, Nbgrader, Formgrader)"
	@echo "The feedback:   build/class/feedback/"

# What everything else needs: an environment with the pinned versions.
$(READY): requirements.txt pyproject.toml
	@echo "Installing into .venv (a few minutes the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

release: build/.release ## Make exercises/ and the visible checks from solutions/ and tests/hidden/

build/.release: $(READY) $(wildcard solutions/*/*.md tests/hidden/*.py) headmaster/authoring.py
	$(BIN)/python -m tests.hidden
	$(BIN)/headmaster release $(ASSIGNMENTS)
	@mkdir -p build && touch $@

fairness: build/.release ## Try every wrong and every right answer with many seeds, and every attack (ONLY=NN_topic for one)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.hidden fairness $(ONLY) $(if $(SEEDS),--seeds $(SEEDS))

book: build/.release ## Build the book (a failing cell or a warning fails the build)
	$(BIN)/jupyter-book build . -W --keep-going --path-output build/book

pdf: book ## Print the whole book into build/many-heads.pdf (needs Chromium)
	$(BIN)/python book/_ext/print_book.py

grade: build/.release ## Collect and grade the sample class as an instructor would
	@rm -rf build/class/downloaded
	@for assignment in $(SAMPLE); do \
	  mkdir -p build/class/downloaded/$$assignment/archive && \
	  cp tests/class/downloads/$$assignment/* build/class/downloaded/$$assignment/archive/ && \
	  $(BIN)/nbgrader zip_collect $$assignment --force --log-level=ERROR || exit 1; \
	done
	$(BIN)/headmaster grade $(SAMPLE)

student-edition: build/.release ## Write the book, exercises and library for students, without the answers
	$(BIN)/python book/_ext/student_edition.py

serve: ## Show the book at http://localhost:8000 (PORT=… for another)
	$(BIN)/python -m http.server $(PORT) --bind localhost --directory $(SITE)

test: $(READY) ## Run all tests
	$(BIN)/python -m pytest -n auto --dist loadgroup

bench: $(READY) ## Measure the library and the grader against their peers, in ratios
	$(BIN)/python tests/bench/bench_attention.py
	$(BIN)/python tests/bench/bench_grading.py

clean: ## Remove everything that was built (.venv stays)
	rm -rf build .jupyter_cache solutions/*/*.ipynb

help: ## Say what each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile
