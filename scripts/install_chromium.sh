#!/bin/sh
# A Chromium for the tests of the page, where there is none and Debian's can be had; else those tests are skipped loudly.
if command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null; then
    exit 0
fi
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium && exit 0
fi
echo "NO CHROMIUM could be installed: the tests of the page will be skipped" >&2
