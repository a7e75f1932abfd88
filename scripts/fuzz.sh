#!/usr/bin/env bash
# Runs every fuzz target for the time given (default 60s), one after another.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-60s}
ran=0
while IFS=: read -r file target; do
	pkg=./$(dirname "$file")
	echo "== $target ($pkg), $time"
	go test -run='^$' -fuzz="^$target\$" -fuzztime="$time" "$pkg"
	ran=$((ran + 1))
done < <(git ls-files -co --exclude-standard '*_test.go' | xargs grep -oE '^func Fuzz[A-Za-z0-9]+' /dev/null | sed 's/func //' | sort)
echo "$ran fuzz targets ran without a finding"
[ "$ran" -gt 0 ]
