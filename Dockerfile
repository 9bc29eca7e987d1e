# Images for CPUs and for NVIDIA GPUs: docker build --target cpu (or cuda) -t dreamer .
# Untested so far, see docs/installing.md.

FROM python:3.11-slim AS base
# Git for extras that come from repositories; OpenGL for suites that draw.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends git libegl1 libosmesa6 \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml requirements.lock README.md LICENSE ./
COPY dreamerv3 dreamerv3
COPY embodied embodied
ARG EXTRAS=gymnasium
WORKDIR /work
ENTRYPOINT ["dreamerv3"]
CMD ["doctor"]

FROM base AS cuda
# CUDA comes with JAX; the driver and its libraries with the NVIDIA container toolkit.
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics
RUN pip install --no-cache-dir -c /src/requirements.lock "/src[gpu,${EXTRAS}]"

FROM base AS cpu
RUN pip install --no-cache-dir -c /src/requirements.lock "/src[${EXTRAS}]"
