#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart execbroker.service # after an upgrade, if it runs; it is not started
fi
