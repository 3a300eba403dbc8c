#!/usr/bin/env bash
# Builds the wheel, installs it into an empty environment and uses it from a folder that is not the source tree.
# With `openenv` that extra is installed, too, and serves: pip chooses its versions, which takes minutes.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python=$root/.venv/bin/python

pip_quiet() {
    local python=$1
    shift
    "$python" -m pip --disable-pip-version-check --no-input -q "$@" >"$scratch/pip.log" 2>&1 ||
        { tail -n 15 "$scratch/pip.log" >&2; return 1; }
}

# From a copy, so that leftovers of earlier builds in the tree can't get into the wheel.
mkdir "$scratch/source"
(cd "$root" && git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' name; do
    [ ! -f "$name" ] || printf '%s\0' "$name"
done | xargs -0 cp --parents -t "$scratch/source")
pip_quiet "$python" wheel --no-deps --no-build-isolation -w "$scratch/dist" "$scratch/source"
for room in tests/ deploy/recipes/; do
    ! "$python" -m zipfile -l "$scratch"/dist/*.whl | grep -q "^$room" || { echo "the wheel holds $room" >&2; exit 1; }
done
"$python" -m venv "$scratch/venv"
# The versions of the lock, so that what was tested is what is installed; torch first, for the build of this machine.
grep -oE '^[A-Za-z0-9_.-]+==[^\\]+' "$root/deploy/requirements/lock.txt" >"$scratch/versions.txt"
pip_quiet "$scratch/venv/bin/python" install "$(grep '^torch==' "$scratch/versions.txt")"
wheel=$(echo "$scratch"/dist/*.whl)
pip_quiet "$scratch/venv/bin/python" install -c "$scratch/versions.txt" "$wheel"
[ -z "${1:-}" ] || pip_quiet "$scratch/venv/bin/python" install "${wheel}[$1]"
"$scratch/venv/bin/python" -m pip --disable-pip-version-check check
mkdir "$scratch/elsewhere"
cd "$scratch/elsewhere"
unset PYTHONPATH
PATH=$scratch/venv/bin:$PATH
computerrl doctor
computerrl run --dry-run deploy/local.yaml
printf '%s\n' "Agent.type(e7, text='marble turnip\\n', overwrite=True)" "Agent.hotkey(['ctrl', 's'])" DONE |
    computerrl play text_editor/train/0 --port 0 | tee "$scratch/played"
grep -q 'verdict: solved' "$scratch/played"
[ -n "${1:-}" ] || exit 0
python - <<'END'
import re, signal, subprocess
from openenv.core import GenericEnvClient

command = ["computerrl", "serve-env", "text_editor", "--count", "2", "--port", "0"]
with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
    line = server.stdout.readline()
    with GenericEnvClient(base_url=re.search(r"http://\S+", line)[0], message_timeout_s=120).sync() as env:
        print(env.reset(task="text_editor/train/1").observation["instruction"])
        ended = env.step({"text": "Agent.exit(success=False)"})
    server.send_signal(signal.SIGTERM)
print(ended.observation["verdict"])
assert (ended.done, ended.reward, server.returncode) == (True, 0.0, 0)
END
