# The table of contents of this project. `make` alone explains the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules

CACHE := $(or $(NPU_PLATFORM_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/npu-platform)
# One environment per lock and interpreter, outside the checkout: a fresh clone starts warm.
VENV := $(CACHE)/venv/$(shell { cat requirements/dev.txt; python3 -V; uname -m; } | sha256sum | cut -c1-16)
PY := $(VENV)/bin/python
CODE := npu kubelet daemon plugin exporter thermal simulator inference kubectl_npu ci images
DEMO ?= demo
LANES ?= 2
IN_LANES = --numprocesses $(LANES) --dist loadscope --no-loadscope-reorder --durations=25 --durations-min=5
HOST_ARCH := $(if $(filter aarch64,$(shell uname -m)),arm64,amd64)

help: ## explain the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(PY): requirements/dev.txt ci/bootstrap.sh
	@ci/bootstrap.sh "$(VENV)" requirements/dev.txt

venv: $(PY) ## create the Python environment (in the cache, from hashed pins)
python: $(PY) ## print the path of its interpreter
	@echo $(PY)

lint: $(PY) ## ruff, import contracts, spelling, YAML, shell
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(VENV)/bin/lint-imports --config pyproject.toml
	@$(PY) -m codespell_lib $$(git ls-files | grep -vE '\.(txt|svg|png|json|lock)$$')
	@$(VENV)/bin/yamllint --strict -c .yamllint.yaml $$(git ls-files '*.yaml' '*.yml' | grep -v '/templates/')
	@$(VENV)/bin/shellcheck $$(git ls-files '*.sh' .ci/run)

types: $(PY) ## mypy --strict on packages and tests
	@$(PY) -m mypy
	@$(PY) -m mypy tests

unit: $(PY) ## unit tests of the pure core, with coverage
	@$(PY) -m coverage erase
	@$(PY) -m coverage run -m pytest tests/unit -q --numprocesses 2 --durations 10
	@$(PY) -m coverage combine -q
	@$(PY) -m coverage report --skip-covered --skip-empty --fail-under=93

check: lint types unit generated ## lint, types and unit tests: under three minutes

generated: $(PY) ## regenerate what is generated and fail on a difference
	@$(PY) -m ci.generated --check

FUZZ_SECONDS ?= 60
# 0 is a random seed; another one tries the same inputs each time.
FUZZ_SEED ?= 0
fuzz: $(PY) ## coverage-guided fuzzing of all parsers, FUZZ_SECONDS for each (x86-64, Python 3.11)
	@$(PY) -m ci.fuzz --seconds $(FUZZ_SECONDS) --seed $(FUZZ_SEED)

laws: $(PY) ## property-based tests with 2,000 new examples each
	@HYPOTHESIS_PROFILE=search $(PY) -m pytest tests/unit -m hypothesis -q --numprocesses 2

component: $(PY) ## real processes on simulated boards, fake kubelet, fake API server
	@$(PY) -m pytest tests/component -q

chart: $(PY) ## render, validate and compare the chart with Helm 3.17 and 4
	@$(PY) -m pytest tests/chart -q --numprocesses 2

images: $(PY) ## build the images for this machine into dist/<architecture>
	@$(PY) -m images build --arch $(HOST_ARCH) --out dist/$(HOST_ARCH)

images-arm64: $(PY) ## build the images for arm64 boards into dist/arm64, check their size
	@$(PY) -m images build --arch arm64 --out dist/arm64
	@$(PY) -m images size --arch arm64

kubectl-npu: $(PY) ## kubectl npu as one file, with an archive and a manifest for krew, into dist/kubectl
	@$(PY) -m ci.kubectl_plugin --out dist/kubectl

REGISTRY ?=
push: $(PY) ## push images of both architectures to REGISTRY=host/path, digests into dist/
	@test -n "$(REGISTRY)" || { echo "make push REGISTRY=registry.example/npu-platform" >&2; exit 2; }
	@$(PY) -m images push "$(REGISTRY)" --digests dist/values-digests.yaml

VERSION ?=
release: $(PY) ## chart, images, bills of materials and checksums of VERSION=1.2.3 into dist/
	@test -n "$(VERSION)" || { echo "make release VERSION=1.2.3" >&2; exit 2; }
	@$(PY) -m ci.release "$(VERSION)"

site: $(PY) ## the documentation as pages, into dist/site
	@$(PY) -m ci.site --out dist/site

image-test: $(PY) ## run what is in the images: amd64 natively, arm64 under emulation
	@$(PY) -m images verify --arch $(HOST_ARCH)
	@$(PY) -m images size --arch arm64
	@$(PY) -m images verify --arch arm64

cluster-test: $(PY) ## the platform on a real Kubernetes, LANES clusters at a time
	@$(PY) -m pytest tests/cluster -v -m "not long" $(IN_LANES)

cluster-test-long: $(PY) ## outages of ten minutes and more on a real Kubernetes, for before a release
	@$(PY) -m pytest tests/cluster -v -m long $(IN_LANES)

PODS ?= 0
bench-plugin: $(PY) ## the device plugin against Go's sample plugin: table, JSON, gates; PODS=60 starts Pods, too
	@mkdir -p dist
	@$(PY) -m ci.bench.plugin --pods $(PODS) --json dist/bench-plugin.json

test: ## everything the continuous integration checks
	@FUZZ_SECONDS=2 FUZZ_SEED=1 ci/steps.sh check fuzz component chart image-test cluster-test

bench-thermal: $(PY) ## simulated days of the thermal policy beside simpler ones, docs/thermal-closed-loop.md
	@$(PY) -m ci.closedloop --write

test-fresh: $(PY) ## the demonstration on a stranger's machine: a bare Debian 12 guest, emulated
	@$(PY) -m ci.fresh run

bench-guard: $(PY) ## the thermal guard on 5,000 nodes of a real API server: table, JSON, gates
	@mkdir -p dist
	@$(PY) -m tests.bench.guard --json dist/bench-guard.json

bench-exporter: $(PY) ## scrapes, memory and CPU of the exporter beside prometheus-node-exporter
	@$(PY) -m tests.bench.exporter --json dist/bench-exporter.json

demo: $(PY) ## from nothing to a running platform with simulated boards, and a tour
	@$(PY) -m ci.demo up --name $(DEMO)

demo-autoscale: $(PY) ## KEDA on the demonstration's cluster, and a Prometheus that follows services
	@$(PY) -m ci.demo autoscale --name $(DEMO)

demo-env: $(PY) ## print what a shell needs to work on it, for eval (make -s demo-env)
	@$(PY) -m ci.demo env --name $(DEMO)

demo-down: $(PY) ## remove the demonstration, leaving nothing
	@$(PY) -m ci.demo down --name $(DEMO)

kubeconfig: $(PY) ## print the path of the demonstration's kubeconfig (make -s kubeconfig)
	@$(PY) -m ci.demo kubeconfig --name $(DEMO)

.PHONY: help venv python lint types unit check generated fuzz laws component chart images images-arm64 kubectl-npu \
	site push release image-test cluster-test cluster-test-long test bench-plugin bench-thermal bench-guard bench-exporter \
	test-fresh demo demo-autoscale demo-env demo-down kubeconfig
