#!/bin/sh
# The container's first process. `serve` (the default) becomes the server itself, so that `docker stop` drains it;
# anything else is run as it is. JITNEY_IMAGE_ROOT puts the same layout below another directory, for tests.
set -eu

if [ "${1:-serve}" = "serve" ]; then
    exec torchserve --start --foreground --disable-token-auth \
        --ts-config "${JITNEY_IMAGE_ROOT:-}/home/model-server/config.properties"
fi
exec "$@"
