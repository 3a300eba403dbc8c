#!/usr/bin/env bash
# Makes the image of a virtual machine's desktop: Debian 12 with the guest packages, its kernel and its first file
# system. INTO names the folder, GNOME=1 adds GNOME's shell, MIRROR another source of packages. Needs root.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
COMPUTERRL_VM=1 bash deploy/setup/setup.sh
into=${INTO:-$root/.cache/vm}
work=$(mktemp -d /var/tmp/computerrl-vm.XXXXXX)
trap 'rm -rf "$work"' EXIT
words() { sed 's/#.*//' "$@" | tr -s '[:space:]' '\n' | sed '/^$/d'; }
packages=$(words deploy/guest/packages.txt deploy/setup/office-packages.txt deploy/setup/vm-image.txt; [ -z "${GNOME:-}" ] || printf 'gnome-session\ngnome-shell\nnautilus\n')
cat >"$work/hook" <<'HOOK'
#!/bin/sh -e
echo desktop >"$1/etc/hostname"
chroot "$1" useradd -m -u 1000 -s /bin/bash agent
chroot "$1" passwd -q -l root
chroot "$1" systemctl -q mask ssh.service apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer \
    man-db.timer systemd-timesyncd.service getty@tty1.service
chroot "$1" systemctl -q set-default multi-user.target
rm -rf "$1"/usr/share/man/* "$1"/usr/share/doc/* "$1"/usr/share/locale/* "$1"/var/cache/apt/* "$1"/var/lib/apt/lists/*
HOOK
chmod 755 "$work/hook"
mmdebstrap --quiet --variant=minbase --aptopt='APT::Install-Recommends "false"' \
    --include="$(paste -sd, <<<"$packages")" --customize-hook="$work/hook \"\$1\"" \
    bookworm "$work/root" ${MIRROR:+"$MIRROR"}
mkdir -p "$into"
cp -L "$work/root/vmlinuz" "$into/vmlinuz"
cp -L "$work/root/initrd.img" "$into/initrd"
mke2fs -q -t ext4 -m 0 -L root -d "$work/root" "$work/disk.img" 8G
qemu-img convert -O qcow2 "$work/disk.img" "$into/disk.qcow2.new"
mv "$into/disk.qcow2.new" "$into/disk.qcow2"
chmod a+r "$into"/*
printf 'vm-image: %s\n' "$into"
