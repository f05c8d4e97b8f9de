#!/bin/sh
set -e
# Debian says "remove", RPM that 0 versions are left.
if [ -d /run/systemd/system ] && { [ "$1" = remove ] || [ "$1" = 0 ]; }; then
	systemctl disable --now execbroker.service
fi
