#!/bin/sh
# A Chromium for the tests of the page, where there is none and Debian's can be had; else those tests are skipped loudly.
# Never fails: a page that cannot be tested is no reason to test nothing.
for name in "${TORCHCAPS_CHROMIUM:-chromium}" chromium-browser google-chrome; do
    command -v "$name" >/dev/null && exit 0
done
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    echo "installing chromium"
    get() { DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=1 -o Acquire::http::Timeout=20 "$@"; }
    get update && get install -y --no-install-recommends chromium >/dev/null && exit 0
fi
echo "NO CHROMIUM could be installed: the tests of the page will be SKIPPED" >&2
exit 0
