#!/bin/sh
# The container's first process. `serve` (the default) becomes the server itself, so that `docker stop` drains it;
# anything else is run as it is. On SageMaker, Vertex AI, Azure ML, Cloud Run and Knative it serves by their contract
# (docs/operations/platforms.md); JITNEY_PLATFORM=none turns that off. JITNEY_IMAGE_ROOT puts the same layout below
# another directory, for tests.
#
# Without a token the image's own configuration keeps management (8081, 7071) on the container's loopback: use
# `docker exec`, or a sidecar of the same pod. To open it to others set JITNEY_MANAGEMENT=token: management then listens
# on all addresses, and every request needs a token of /home/model-server/key_file.json (inference requests its
# inference key). A configuration that is mounted over the image's decides about any other address itself.
set -eu

if [ "${1:-serve}" = "serve" ]; then
    home="${JITNEY_IMAGE_ROOT:-}/home/model-server"
    config="$home/config.properties"
    # On a platform its variables and folders say what is served, and where. What is wrong with them ends the start.
    platform="$(jitney platform)"
    case "$platform" in
        sagemaker | vertex | azure-ml | mlserver | hugging-face) exec jitney serve ;;
        cloud-run) exec jitney serve --model-store "$home/model-store" ;;
    esac
    case "${JITNEY_MANAGEMENT:-loopback}" in
        loopback) exec torchserve --start --foreground --disable-token-auth --ts-config "$config" ;;
        token) ;;
        *)
            echo "JITNEY_MANAGEMENT must be loopback or token, not ${JITNEY_MANAGEMENT}" >&2
            exit 2
            ;;
    esac
    opened="${TMPDIR:-/tmp}/config.properties"
    sed -e 's|^management_address=http://127\.0\.0\.1:8081$|management_address=http://0.0.0.0:8081|' \
        -e 's|^grpc_management_address=127\.0\.0\.1$|grpc_management_address=0.0.0.0|' "$config" > "$opened"
    exec torchserve --start --foreground --ts-config "$opened"
fi
# KServe's runtime for TorchServe runs `torchserve --start`, whose server would go on without this process and end with it.
if [ "${1:-}" = "torchserve" ]; then
    case " $* " in
        *" --foreground "*) ;;
        *" --start "*) set -- "$@" --foreground ;;
    esac
    # KServe asks port 8080, and 8081 over gRPC, where its own image has a second server before TorchServe's.
    case " $* " in
        *"/mnt/models/config/config.properties "*)
            set -- "$@" --kserve-port "${JITNEY_KSERVE_PORT:-8080}" --kserve-grpc-port "${JITNEY_KSERVE_GRPC_PORT:-8081}"
            ;;
    esac
fi
exec "$@"
