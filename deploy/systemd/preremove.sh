#!/bin/sh
# Stops what runs when the package goes, not when a newer one comes. /var/lib/keep and /var/lib/keep-proxy stay: they are
# the record of what was done.
set -e
case "$1" in
upgrade | 1) exit 0 ;;
esac
if [ -d /run/systemd/system ]; then systemctl disable --now keep.service keep-proxy.service || true; fi
