# The image: TorchServe's layout (ports, user, paths, entry point), so that its `docker run` lines work unchanged.
#
#   docker build -t jitney .                                    CPU
#   docker build --target gpu -t jitney:gpu .                   GPU; run it with --gpus all
#   docker build --target sagemaker -t jitney:sagemaker .       for Amazon SageMaker: root, and its labels
#   docker build --build-arg PYTHON_PACKAGES="" -t jitney .     without torch, for handlers that need none
#   docker build --build-arg PROGRAM=IMAGE -t jitney .          with a program that is built already: /jitney of that image
#
# Both variants share one base: torch's wheels bring CUDA's libraries, the container runtime brings the driver. The root
# file system may be read-only, and any user may run it, who writes to two directories:
# docker run --read-only --tmpfs /home/model-server/tmp --tmpfs /home/model-server/logs
ARG RUST_VERSION=1.95.0
ARG PYTHON_VERSION=3.11
ARG RUST_BASE=rust:${RUST_VERSION}-slim-bookworm
ARG PYTHON_BASE=python:${PYTHON_VERSION}-slim-bookworm
# Where the program comes from: a stage of this file, or an image.
ARG PROGRAM=compiled
# What the image for SageMaker stands on: a stage of this file, or an image of yours made from one.
ARG SAGEMAKER_BASE=cpu_packages

FROM ${RUST_BASE} AS compiled
WORKDIR /src
RUN apt-get update \
    && apt-get install -y --no-install-recommends build-essential cmake perl \
    && rm -rf /var/lib/apt/lists/*
COPY . .
RUN cargo build --locked --release -p jitney-cli && cp target/release/jitney /jitney

FROM ${PROGRAM} AS program

FROM ${PYTHON_BASE} AS base
ARG VERSION=0.2.0
LABEL org.opencontainers.image.title="jitney" \
      org.opencontainers.image.description="A model server that batches by itself, and a drop-in for TorchServe" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --uid 1000 --create-home model-server \
    && mkdir -p /home/model-server/tmp /home/model-server/logs /home/model-server/model-store /home/model-server/wf-store \
    && python3 -m venv /home/venv \
    && chown -R model-server:model-server /home/model-server /home/venv \
    && chmod 1777 /home/model-server/tmp /home/model-server/logs
ENV PATH="/home/venv/bin:$PATH" \
    VIRTUAL_ENV=/home/venv \
    PYTHONUNBUFFERED=TRUE \
    TEMP=/home/model-server/tmp \
    TMPDIR=/home/model-server/tmp
COPY --from=program /jitney /usr/local/bin/jitney
COPY docker/dockerd-entrypoint.sh docker/healthcheck /usr/local/bin/
COPY --chown=model-server:model-server docker/config.properties /home/model-server/config.properties
COPY --chown=model-server:model-server python/torchserve-compat /opt/torchserve-compat
USER model-server
RUN pip install --no-cache-dir /opt/torchserve-compat
WORKDIR /home/model-server
EXPOSE 8080 8081 8082 7070 7071
HEALTHCHECK --interval=30s --timeout=10s --start-period=300s --retries=3 CMD ["healthcheck"]
ENTRYPOINT ["/usr/local/bin/dockerd-entrypoint.sh"]
CMD ["serve"]
# model-server, as a number: Kubernetes believes runAsNonRoot only of numbers.
USER 1000:1000

FROM base AS cpu_packages
ARG PYTHON_PACKAGES="torch==2.6.0 torchvision==0.21.0 numpy==2.2.6 pillow==11.2.1"
RUN test -z "$PYTHON_PACKAGES" \
    || pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu $PYTHON_PACKAGES

# SageMaker expects root, which owns /opt/ml, and reads from labels what a container can do.
FROM ${SAGEMAKER_BASE} AS sagemaker
LABEL com.amazonaws.sagemaker.capabilities.accept-bind-to-port=true \
      com.amazonaws.sagemaker.capabilities.multi-models=true
# hadolint ignore=DL3002
USER root

FROM base AS gpu
ARG PYTHON_PACKAGES="torch==2.6.0 torchvision==0.21.0 numpy==2.2.6 pillow==11.2.1"
RUN test -z "$PYTHON_PACKAGES" || pip install --no-cache-dir $PYTHON_PACKAGES
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility

FROM cpu_packages AS cpu
