# make run     the question answered: sweep, map, answer       make test    every test
# make bench   the engine's figures, as ratios                 make clean   removes .venv and what sweeps have stored
# make gallery every figure of outputs/gallery again
#
# Needs Python 3.11 or newer and make; everything else goes into .venv. Nothing is installed again until pyproject.toml changes.

PYTHON ?= python3
BIN := .venv/bin
SWEEP := $(BIN)/sweep
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: run test bench gallery clean

run: .venv/installed
	$(SWEEP) run configs/why-400g.yaml -o outputs/why-400g.zarr
	$(SWEEP) run configs/iso-line.yaml -o outputs/iso-line.zarr
	$(SWEEP) map outputs/iso-line.zarr --x tokens_per_domain --y achieved_tflops --color required_link_gbps -o outputs/iso-line.png
	$(SWEEP) map outputs/iso-line.zarr --x tokens_per_domain --y achieved_tflops --color required_link_gbps -o outputs/iso-line.pdf
	$(SWEEP) why outputs/why-400g.zarr

test: .venv/installed-test
	$(BIN)/python -m pytest -n 2

bench: .venv/installed-test
	BENCH=1 $(BIN)/python -m pytest tests/benchmarks -s

gallery: .venv/installed
	$(SWEEP) run iso-line -o outputs/iso-line.zarr --overwrite
	$(SWEEP) map outputs/iso-line.zarr --x tokens_per_domain --y achieved_tflops --color required_link_gbps -o outputs/gallery/iso-line.png
	$(SWEEP) run layouts -o outputs/layouts.zarr --overwrite
	$(SWEEP) gallery outputs/layouts.zarr --interval 80 -o outputs/gallery/layouts
	$(MAKE) -B -C outputs/gallery

clean:
	rm -rf .venv outputs/*.zarr outputs/*.png outputs/*.pdf

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv .venv

.venv/installed: pyproject.toml | .venv/bin/python
	$(PIP) --editable .
	@touch $@

.venv/installed-test: pyproject.toml | .venv/bin/python
	$(PIP) --editable '.[test]'
	@touch .venv/installed $@
