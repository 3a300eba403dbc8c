#!/usr/bin/env bash
# Builds SGLang's own environment in .venv-sglang from the pinned files: `sglang.sh cpu` for a machine without a GPU,
# `sglang.sh gpu` for one with CUDA, where the learner gets the same torch. Repeating it costs a second.
# PYTHON=... picks another interpreter; it must be 3.11, which the pinned wheels are for.
# COMPUTERRL_SGLANG=... names another folder, which several checkouts can share; .venv-sglang is then a link to it.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
venv=$(realpath -m "${COMPUTERRL_SGLANG:-$root/.venv-sglang}")
stamp=$venv/.computerrl
begun=$venv/.computerrl-begun  # of a build that has not come to its end
kind=${1:-cpu}
case $kind in
    cpu) pinned=(deploy/requirements/sglang-cpu.txt deploy/requirements/sglang-cpu-nodeps.txt) size="2.4 GB" ;;
    gpu) pinned=(deploy/requirements/sglang-gpu.txt) size="9 GB" ;;
    *) printf 'sglang: cpu or gpu, not %s\n' "$kind" >&2 && exit 2 ;;
esac
mkdir -p .cache
exec 9>.cache/sglang.lock
flock 9

say() { printf 'sglang: %s\n' "$*"; }

# A shared environment is reached by a link of the usual name.
if [ "$venv" != "$(realpath -m "$root/.venv-sglang")" ]; then
    if [ -e "$root/.venv-sglang" ] && [ ! -L "$root/.venv-sglang" ]; then
        say ".venv-sglang is an environment of its own: move it away, or unset COMPUTERRL_SGLANG"
        exit 1
    fi
    ln -sfn "$venv" "$root/.venv-sglang"
fi

pip_quiet() {
    "$venv/bin/python" -m pip --disable-pip-version-check --no-input -q "$@" >.cache/sglang-pip.log 2>&1 ||
        { tail -n 15 .cache/sglang-pip.log >&2; return 1; }
}

refuse_gpu() {
    local there
    there=$("$venv/bin/python" -m pip list --format=freeze 2>/dev/null)  # whole: a pipe that closes early is a failure
    if grep -qiE '^(torchvision|nvidia-)' <<<"$there"; then
        say "packages for GPUs came along: let PIP_EXTRA_INDEX_URL name PyTorch's index of CPU wheels, and try again"
        exit 1
    fi
}

wanted=$(sha256sum "${pinned[@]}" | sha256sum | cut -d' ' -f1)
if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$wanted" ]; then
    python=${PYTHON:-}
    if [ -z "$python" ]; then
        for candidate in /usr/bin/python3.11 python3.11; do
            if command -v "$candidate" >/dev/null; then python=$candidate && break; fi
        done
    fi
    if [ -e "$venv" ] && [ ! -e "$stamp" ] && [ ! -e "$begun" ]; then
        say "$venv was not made by this script (for a GPU, perhaps): move it away, and try again"
        exit 1
    fi
    [ -n "$python" ] || { say "no Python 3.11 found; apt-get install python3.11 python3.11-venv, or set PYTHON"; exit 1; }
    say "environment of $size in $venv ..."
    start=$SECONDS
    rm -rf "$venv"
    mkdir -p "$venv"
    : >"$begun"
    "$python" -m venv "$venv"
    if [ "$kind" = cpu ]; then
        # torch first and alone, by its version: the index then gives the build for this machine, whose hash is its own.
        pip_quiet install "$(grep -o '^torch==[^ ]*' "${pinned[0]}")"
        refuse_gpu
    fi
    pip_quiet install --require-hashes --no-deps "${pinned[@]/#/-r}"
    [ "$kind" = gpu ] || refuse_gpu
    rm "$begun"
    printf '%s\n' "$wanted" >"$stamp"
    say "environment: $((SECONDS - start)) s"
fi

if [ "$kind" = gpu ]; then
    torch=deploy/requirements/torch-gpu.txt
    version=$(sed -n 's/^torch==\([^ ]*\).*/\1/p' $torch)
    if [ "$(.venv/bin/python -c 'import importlib.metadata as m; print(m.version("torch"))')" != "$version" ]; then
        say "torch $version into .venv, as in $venv ..."
        .venv/bin/python -m pip --disable-pip-version-check --no-input -q install --require-hashes --no-deps -r $torch
    fi
    exit 0
fi

# Every process of that environment finds the stand-ins, those that SGLang spawns too. Written each time: a
# checkout may have moved.
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
printf '%s\nimport computerrl_cpu_shim; computerrl_cpu_shim.install()\n' "$root/tests/sglang/shim" \
    >"$site/computerrl_cpu_shim.pth"
