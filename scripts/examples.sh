#!/usr/bin/env bash
# Runs every example that needs no set-up, and shows that the quickstart's
# scenes depend on what they claim to show: with a protection broken, it must
# fail.
set -euo pipefail
cd "$(dirname "$0")/.."
for dir in examples/*/; do
	echo "== go run ./$dir"
	go run "./$dir"
done
bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
go build -o "$bin/quickstart" ./examples/quickstart
for protection in claims key fence fingerprint; do
	if "$bin/quickstart" -break="$protection" >"$bin/out" 2>&1; then
		cat "$bin/out"
		echo "the quickstart does not notice that $protection is broken" >&2
		exit 1
	fi
	echo "== quickstart -break=$protection fails, as it must"
done
