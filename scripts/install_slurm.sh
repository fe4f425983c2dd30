#!/bin/sh
# Slurm's programs from Debian's packages, for 'make test-slurm'. The tests start daemons of their own, with their own
# key, ports and folders: nothing of a Slurm that is already here is touched, and the packages' services are not started.
set -eu
if command -v slurmctld >/dev/null 2>&1 || [ -x /usr/sbin/slurmctld ]; then
    exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "Slurm is missing: install the packages slurm-wlm and munge, and run this as root" >&2
    exit 1
fi
printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d && chmod +x /usr/sbin/policy-rc.d # packages start no services
trap 'rm -f /usr/sbin/policy-rc.d' EXIT
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends slurm-wlm munge
