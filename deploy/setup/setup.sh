#!/usr/bin/env bash
# Brings this machine to where `make train` and `make test` work. Repeating it costs a second: every step first looks
# whether it is needed. COMPUTERRL_OFFICE=0 leaves LibreOffice out, COMPUTERRL_APPS=0 the applications beside it
# (VLC, Chromium); COMPUTERRL_OSWORLD=1 adds programs that published task files name; PYTHON=... picks another
# interpreter.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
venv=$root/.venv
stamps=$venv/.computerrl
mkdir -p .cache
exec 9>.cache/setup.lock
flock 9

worked=
say() { printf 'setup: %s\n' "$*"; }

words() { sed 's/#.*//' "$@" | tr -s '[:space:]' '\n' | sed '/^$/d'; }

digest() { sha256sum "$@" | sha256sum | cut -d' ' -f1; }

# Runs "$@", which does what $2 says, unless its stamp already holds the digest $3.
step() {
    local name=$1 doing=$2 wanted=$3
    shift 3
    if [ -f "$stamps/$name" ] && [ "$(cat "$stamps/$name")" = "$wanted" ]; then
        return 0
    fi
    say "$name: $doing ..."
    worked=yes
    local start=$SECONDS
    "$@"
    mkdir -p "$stamps"
    printf '%s\n' "$wanted" >"$stamps/$name"
    say "$name: $((SECONDS - start)) s"
}

missing_debs() {
    local have
    have=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "$@" 2>/dev/null | sed -n 's/ installed$//p' | sort -u || true)
    comm -23 <(printf '%s\n' "$@" | sort -u) <(printf '%s\n' "$have")
}

# A freshly unpacked openssh-server would start a system sshd: policy-rc.d forbids every service while we install.
policy=/usr/sbin/policy-rc.d
ours='# of computerrl, while it installs packages'
restore_policy() {
    rm -f "$policy"
    if [ -e "$policy.before-computerrl" ]; then mv "$policy.before-computerrl" "$policy"; fi
}
# A set-up that was killed meanwhile has left it.
if [ "$(id -u)" = 0 ] && grep -qsxF "$ours" "$policy"; then restore_policy; fi

install_debs() {
    if [ "$(id -u)" != 0 ]; then
        say "these packages are missing; as root: apt-get install --no-install-recommends $*"
        exit 1
    fi
    trap restore_policy EXIT
    if [ -e "$policy" ] && [ ! -e "$policy.before-computerrl" ]; then mv "$policy" "$policy.before-computerrl"; fi
    printf '#!/bin/sh\n%s\nexit 101\n' "$ours" >"$policy"
    chmod 755 "$policy"
    # Lists of another day may lack a security release, and the browser changes with every one.
    say "Debian packages: apt-get update ..."
    apt_get update || say "apt-get update failed: going on with the package lists that are here"
    say "Debian packages: apt-get fetches and unpacks; .cache/apt.log grows meanwhile ..."
    apt_get install "$@"
    restore_policy
    trap - EXIT
}

apt_get() {
    local verb=$1
    shift
    DEBIAN_FRONTEND=noninteractive apt-get "$verb" -q -y -o Dpkg::Use-Pty=0 --no-install-recommends "$@" >.cache/apt.log 2>&1 ||
        { tail -n 15 .cache/apt.log >&2; return 1; }
}

lists=(deploy/guest/packages.txt)
if [ "${COMPUTERRL_OFFICE:-1}" != 0 ]; then lists+=(deploy/setup/office-packages.txt); fi
if [ "${COMPUTERRL_APPS:-1}" != 0 ]; then
    for list in deploy/setup/*-packages.txt; do
        if [ "$list" != deploy/setup/office-packages.txt ]; then lists+=("$list"); fi
    done
fi
if [ "${COMPUTERRL_OSWORLD:-0}" != 0 ]; then lists+=(deploy/setup/osworld.txt); fi
if [ "${COMPUTERRL_CONTAINERS:-0}" != 0 ]; then lists+=(deploy/setup/containers.txt); fi
if [ "${COMPUTERRL_MACHINES:-0}" != 0 ]; then lists+=(deploy/setup/machines.txt); fi
if [ "${COMPUTERRL_VM:-0}" != 0 ]; then lists+=(deploy/setup/vm.txt); fi
mapfile -t wanted < <(words "${lists[@]}")
mapfile -t missing < <(missing_debs "${wanted[@]}")
if [ ${#missing[@]} -gt 0 ]; then
    say "Debian packages: ${#missing[@]} are missing: ${missing[*]}"
    worked=yes
    start=$SECONDS
    install_debs "${missing[@]}"
    say "Debian packages: $((SECONDS - start)) s"
fi

python=${PYTHON:-}
if [ -z "$python" ]; then
    for candidate in /usr/bin/python3.11 python3.11 python3.12 python3; do
        if command -v "$candidate" >/dev/null &&
            "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))'; then
            python=$candidate
            break
        fi
    done
fi
[ -n "$python" ] || { say "no Python 3.11 or 3.12 found; apt-get install python3.11, or set PYTHON"; exit 1; }

make_venv() {
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        install_debs "$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
    fi
    rm -rf "$venv"
    "$python" -m venv "$venv"
}

pip_quiet() {
    local growth code=0
    while sleep 20 >/dev/null 2>&1; do say "packages: $(du -sm "$venv" | cut -f1) MB are in $venv"; done &
    growth=$!
    "$venv/bin/python" -m pip --disable-pip-version-check --no-input -q "$@" >.cache/pip.log 2>&1 || code=$?
    kill "$growth" 2>/dev/null || true
    wait "$growth" 2>/dev/null || true
    [ $code = 0 ] || { tail -n 15 .cache/pip.log >&2; return 1; }
}

# torch first and alone, by its version: the index then gives the build for this machine, whose hash is its own. All
# other packages are the files that the lock names by hash, or none.
install_lock() {
    local torch
    torch=$(grep -o '^torch==[^ ]*' deploy/requirements/lock.txt)
    say "packages: pip installs $torch, the largest ..."
    pip_quiet install "$torch"
    say "packages: pip installs $(grep -c '^[^ #].*==' deploy/requirements/lock.txt) pinned packages ..."
    pip_quiet install --require-hashes --no-deps -r deploy/requirements/lock.txt
}

# What desktops' HOME begins with: finished profiles of LibreOffice, GIMP and Thunderbird, where these are installed. A machine on which no desktop
# boots, as while an image is built, does without; the next set-up tries again.
home=.cache/home-template
make_home() {
    rm -rf "$home"
    "$venv/bin/python" -P -m actors.desktop.providers.home_template "$home" >.cache/home.log 2>&1 || {
        tail -n 3 .cache/home.log >&2
        say "no finished LibreOffice profile, so it opens more slowly: \`.venv/bin/computerrl doctor\` says what desktops lack"
    }
}

install_project() { pip_quiet install --no-deps --no-build-isolation -e .; }

# Its programs name their own place, so a checkout that was moved or copied gets a new one.
step venv "a Python environment by $python" "$("$python" -c 'import sys; print(sys.version, sys.base_prefix, sys.argv[1])' "$venv" | sha256sum | cut -d' ' -f1)" make_venv
step packages "what deploy/requirements/lock.txt names, into .venv" "$(digest deploy/requirements/lock.txt)" install_lock
step project "this checkout into .venv, with the program computerrl" "$(digest pyproject.toml)" install_project
if [ "$(id -u)" = 0 ]; then
    [ -d "$home" ] || rm -f "$stamps/home"
    starts=$(command -v gimp thunderbird | tr '\n' ' ' || true)  # which programs have a profile beside LibreOffice's
    step home "a desktop boots once, and programs write the profiles that all others begin with" "$(digest actors/desktop/providers/home_template.py deploy/guest/*.yaml deploy/setup/*-packages.txt)$starts" make_home
fi
say "${worked:+done: }all is there; next:  .venv/bin/computerrl doctor   .venv/bin/computerrl run smoke"
