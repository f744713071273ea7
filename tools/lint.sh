#!/bin/sh
# Style (ruff), types (mypy) and floors (import-linter); all three run even if one complains.
set -u
cd "$(dirname "$0")/.." || exit 1
status=0
for check in 'ruff check .' 'mypy' 'lint-imports --no-logo'; do
    echo "== $check"
    $check || status=1
done
exit $status
