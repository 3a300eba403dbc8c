#!/usr/bin/env bash
# Makes .cache/extras, an environment above .venv with what tests/extras needs: the extras of pyproject.toml and TRL.
# A package that can't be had is named, and its tests are skipped. Repeating it costs a second.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
home=.cache/extras
stamp=$home/installed
wanted=$(sha256sum pyproject.toml "${BASH_SOURCE[0]}" .venv/pyvenv.cfg | sha256sum | cut -d' ' -f1)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then exit 0; fi
rm -rf "$home"
.venv/bin/python -m venv "$home"
packages=$("$root"/.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
theirs=$("$home"/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
# A folder added like this has its .pth files read, so that this checkout is found.
echo "import site; site.addsitedir('$packages')" >"$theirs/ours.pth"
trl="trl>=1.16,<2"
mapfile -t extras < <(.venv/bin/python - <<'END'
import tomllib

extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]
print(*extras["openenv"], *extras["mcp"], *extras["trackers"], sep="\n")
END
)
for package in "${extras[@]}" "$trl"; do
    echo "extras: $package ..."
    "$home"/bin/python -m pip --disable-pip-version-check --no-input -q install "$package" >>.cache/extras-pip.log 2>&1 ||
        echo "extras: $package could not be had: its tests are skipped (.cache/extras-pip.log)"
done
printf '%s\n' "$wanted" >"$stamp"
