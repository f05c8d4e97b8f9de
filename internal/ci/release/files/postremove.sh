#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
if [ "$1" = purge ]; then
	rm -rf /var/cache/private/execbroker /var/lib/private/execbroker /var/cache/execbroker /var/lib/execbroker
fi
