#!/bin/sh
# Stops the daemon when the package goes, not when a newer one comes. /var/lib/keep stays: it is
# the record of what was done.
set -e
case "$1" in
upgrade | 1) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then systemctl disable --now keep.service || true; fi
