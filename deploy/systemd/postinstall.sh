#!/bin/sh
# Makes the user, and lets systemd know the unit. Nothing is started: there is no project yet.
set -e
if command -v systemd-sysusers >/dev/null; then systemd-sysusers keep.conf; fi
install -d -o keep -g keep -m 0750 /var/lib/keep
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	# A new version is used after the calls that are under way.
	systemctl try-restart keep.service
fi
