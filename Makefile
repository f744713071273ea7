# Every target sets up what it needs first; the second time that takes well under a second.
#   PYTHON=python3.12 make setup   chooses the interpreter (3.10 to 3.13)
#   make demo ARGS='--help'        passes arguments on (test and bench take ARGS too)

RUN := tools/env.sh
BENCHMARKS ?= decision dispatch detectors export

.DEFAULT_GOAL := help
.PHONY: help setup demo train doctor test lint bench clean

help:  ## List the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16

setup:  ## Install everything into this checkout
	@$(RUN)

demo:  ## Six robots, an edge and a cloud pool on this machine; results under out/
	@$(RUN) laimr demo $(ARGS)

train:  ## Train the demonstration's detectors anew; results under out/train/ (two hours)
	@$(RUN) laimr train $(ARGS)

doctor:  ## Check this machine and say how to mend what is wrong
	@$(RUN) laimr doctor $(ARGS)

test:  ## Run all tests
	@$(RUN) python -m pytest $(ARGS)

lint:  ## Check style, types and the floors
	@$(RUN) tools/lint.sh

bench:  ## Run the benchmarks, or those in BENCHMARKS=...; results in out/bench/
	@mkdir -p out/bench
	@for name in $(BENCHMARKS); do \
	    echo "== $$name"; \
	    $(RUN) python -m benchmarks.$$name --json out/bench/$$name.json $(ARGS) || exit; \
	done

clean:  ## Remove what set-up made; out/ stays
	rm -rf .venv .venv-* .setup build install log *.egg-info
