#!/bin/sh
# Makes the users, and lets systemd know the units. Nothing is started: there is no project yet.
set -e
if command -v systemd-sysusers >/dev/null; then systemd-sysusers keep.conf; fi
for user in keep keep-proxy; do install -d -o "$user" -g "$user" -m 0750 "/var/lib/$user"; done
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	# A new version is used after the calls and requests that are under way.
	systemctl try-restart keep.service keep-proxy.service
fi
