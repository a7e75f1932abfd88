#!/usr/bin/env bash
# Statement coverage over all tests, of the packages that must not lose it.
set -euo pipefail
cd "$(dirname "$0")/.."
least=85
profile=$(mktemp)
out=$(mktemp)
trap 'rm -f "$profile" "$out"' EXIT
if ! go test -coverpkg=./... -coverprofile="$profile" ./... >"$out"; then
	grep -v '^ok' "$out"
	exit 1
fi
module=$(go list -m)
status=0
for pkg in . keystore keystore/memstore server; do
	path=$module; [ "$pkg" = . ] || path=$module/$pkg
	# A block that several test binaries have counted stands several times.
	percent=$(awk -v p="$path/" 'NR > 1 && index($1, p) == 1 && substr($1, length(p) + 1) !~ /\// {
			n[$1] = $2; if ($3 > 0) hit[$1] = 1 }
		END { for (b in n) { all += n[b]; if (hit[b]) got += n[b] }
			printf "%.1f", all ? 100 * got / all : 0 }' "$profile")
	printf '%-10s %s%%\n' "$pkg" "$percent"
	if awk -v a="$percent" -v b="$least" 'BEGIN { exit !(a < b) }'; then
		echo "$pkg is covered below $least%" >&2
		status=1
	fi
done
exit $status
