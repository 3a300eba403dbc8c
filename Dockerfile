# ComputerRL on a bare Debian 12: set-up as root, then the smallest whole run as a user without rights.
#
#   docker build -t computerrl .
#   docker run --rm --security-opt seccomp=unconfined --security-opt apparmor=unconfined \
#     --security-opt systempaths=unconfined computerrl
#
# The options let the desktops make namespaces and mount a /proc of their own (podman: unmask=ALL for the last). While
# the image is built /proc is masked, so it lacks what set-up takes from a first desktop: LibreOffice's profile. No
# image was built yet: `make fresh-root` runs the same steps where nothing masks /proc.
# --build-arg PIP_EXTRA_INDEX_URL=... names the index of PyTorch's CPU build; without it the image holds the CUDA build.
#
# For GPUs: docker build --target gpu -t computerrl-gpu . ; docker run --gpus all ... computerrl-gpu run gpu-1
FROM debian:12-slim AS base

# Debian drops a version from its archive when a security release follows, so none can be pinned.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends make python3 python3-venv \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home computerrl

WORKDIR /srv/computerrl
COPY . .
ARG PIP_EXTRA_INDEX_URL
# One layer, so that what set-up fetched and drops again is in none.
RUN PIP_NO_CACHE_DIR=1 make setup \
    && rm -rf /var/cache/apt/archives/*.deb /var/lib/apt/lists/* \
    && install -d -o computerrl -g computerrl runs report

# A user of the image's own, whose name is made above.
# hadolint ignore=DL3066
USER computerrl
ENTRYPOINT [".venv/bin/computerrl"]
CMD ["run", "smoke"]

# SGLang with its compilers, and the learner's torch of the same NCCL.
FROM base AS gpu
# hadolint ignore=DL3002,DL3066
USER root
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
RUN PIP_NO_CACHE_DIR=1 make sglang-gpu
# hadolint ignore=DL3066
USER computerrl
CMD ["doctor", "gpu-1"]

FROM base AS cpu
