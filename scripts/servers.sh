#!/usr/bin/env bash
# Installs the servers that the stores are tested against, where they are
# missing and Debian's packages can be had. The tests start them themselves.
set -euo pipefail
missing=()
command -v redis-server >/dev/null || missing+=(redis-server)
command -v mariadbd >/dev/null || [ -x /usr/sbin/mariadbd ] || missing+=(mariadb-server)
compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || command -v initdb >/dev/null || missing+=(postgresql)
[ ${#missing[@]} -eq 0 ] && exit 0
echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -q && apt-get install -q -y --no-install-recommends "${missing[@]}"
