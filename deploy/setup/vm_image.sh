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
chroot_sh() { printf 'chroot "$1" sh -c %q' "$1"; }
mmdebstrap --quiet --variant=minbase --aptopt='APT::Install-Recommends "false"' \
    --include="$(paste -sd, <<<"$packages")" \
    --customize-hook="$(chroot_sh 'echo desktop >/etc/hostname; useradd -m -u 1000 -s /bin/bash agent; passwd -q -d root; passwd -q -l root
        systemctl -q mask ssh.service apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer man-db.timer \
        systemd-timesyncd.service getty@tty1.service plymouth-start.service; systemctl -q set-default multi-user.target')" \
    --customize-hook='rm -rf "$1"/usr/share/man/* "$1"/usr/share/doc/* "$1"/usr/share/locale/* "$1"/var/cache/apt/* "$1"/var/lib/apt/lists/*' \
    bookworm "$work/root" ${MIRROR:+"$MIRROR"}
mkdir -p "$into"
cp -L "$work/root/vmlinuz" "$into/vmlinuz"
cp -L "$work/root/initrd.img" "$into/initrd"
mke2fs -q -t ext4 -m 0 -L root -d "$work/root" "$work/disk.img" 8G
qemu-img convert -O qcow2 "$work/disk.img" "$into/disk.qcow2.new"
mv "$into/disk.qcow2.new" "$into/disk.qcow2"
chmod a+r "$into"/*
printf 'vm-image: %s\n' "$into"
