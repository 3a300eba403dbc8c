#!/usr/bin/env bash
# Makes environments above .venv with what tests/extras needs: the extras of pyproject.toml, TRL and the E2B client.
# verifiers has one of its own: it pins mcp 2 and an openai below 3, and the extras openenv and mcp take an mcp below 2.
# A package that can't be had is named, and its tests are skipped. Repeating it costs a second.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
packages=$("$root"/.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

environment() { # its folder, then extras of pyproject.toml and requirements
    local home=$1 wanted theirs package
    shift
    wanted=$(cat pyproject.toml "${BASH_SOURCE[0]}" .venv/pyvenv.cfg <(echo "$@") | sha256sum | cut -d' ' -f1)
    if [ -f "$home/installed" ] && [ "$(cat "$home/installed")" = "$wanted" ]; then return 0; fi
    rm -rf "$home"
    .venv/bin/python -m venv "$home"
    "$home"/bin/python -m pip -q uninstall -y setuptools  # an old one, which would hide that of .venv
    theirs=$("$home"/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    # A folder added like this has its .pth files read, so that this checkout is found.
    printf '%s\n' "import site; site.addsitedir('$packages')" "$root/actors/front/package" >"$theirs/ours.pth"
    while read -r package; do
        echo "extras: $package ..."
        "$home"/bin/python -m pip --disable-pip-version-check --no-input -q install "$package" >>.cache/extras-pip.log 2>&1 ||
            echo "extras: $package could not be had: its tests are skipped (.cache/extras-pip.log)"
    done < <(.venv/bin/python - "$@" <<'EOF'
import sys, tomllib

extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]
for word in sys.argv[1:]:
    print(*extras.get(word, [word]), sep="\n")
EOF
    )
    "$home"/bin/python -m pip --disable-pip-version-check check
    printf '%s\n' "$wanted" >"$home/installed"
}

environment .cache/extras openenv mcp trackers "trl>=1.16,<2" "e2b>=2.63,<3"
environment .cache/extras-verifiers verifiers
