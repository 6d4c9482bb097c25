# The daemon in an image: CPU only, no root, nothing written outside /var/lib/quantwatch. How to build and run it: docs/deploy.md.
#
#   docker build --build-arg TORCH_INDEX_URL=<PyTorch's index of CPU wheels> -t quantwatch .

# A mirror or a digest goes here. All stages share it, so that the environment meets the interpreter it was made with.
ARG BASE_IMAGE=python:3.12-slim-bookworm

FROM ${BASE_IMAGE} AS wheel
# Package index; pip's own default if empty. pip reads both names from the environment and passes over empty values.
ARG PIP_INDEX_URL=""
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
COPY configs ./configs
COPY golden_prompts ./golden_prompts
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM ${BASE_IMAGE} AS environment
ARG PIP_INDEX_URL=""
ARG TORCH_INDEX_URL=""
# "+cpu" names the CPU build and nothing else: an index without it fails at once instead of giving gigabytes of CUDA.
ARG TORCH_VERSION=2.13.0+cpu
RUN python -m venv --without-pip /opt/quantwatch \
    && PIP_EXTRA_INDEX_URL="${TORCH_INDEX_URL}" \
    pip --python /opt/quantwatch/bin/python install --no-cache-dir "torch==${TORCH_VERSION}"
COPY --from=wheel /wheels /wheels
RUN pip --python /opt/quantwatch/bin/python install --no-cache-dir /wheels/*.whl \
    && /opt/quantwatch/bin/python -c "import torch; assert torch.version.cuda is None, 'not the CPU build of torch'"

FROM ${BASE_IMAGE}
ARG VERSION=0.1.0
ARG REVISION=""
LABEL org.opencontainers.image.title="quantwatch" \
      org.opencontainers.image.description="Quality watchdog for quantized LLM nodes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

RUN useradd --no-log-init --uid 10001 --user-group --no-create-home --home-dir /var/lib/quantwatch --shell /usr/sbin/nologin quantwatch \
    && install -d -o 10001 -g 10001 -m 0750 /var/lib/quantwatch
COPY --from=environment /opt/quantwatch /opt/quantwatch

# The state folder is the only place written to: store, baseline's answers, temporary files. /tmp may be read-only.
ENV PATH=/opt/quantwatch/bin:/usr/local/bin:/usr/bin:/bin \
    HOME=/var/lib/quantwatch \
    XDG_CACHE_HOME=/var/lib/quantwatch/cache \
    TMPDIR=/var/lib/quantwatch \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
VOLUME ["/var/lib/quantwatch"]
WORKDIR /var/lib/quantwatch

USER 10001:10001
EXPOSE 9469
STOPSIGNAL SIGTERM
# Plain Docker only; Kubernetes has probes of its own. http.client, because urllib would ask a proxy from the environment.
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s --retries=5 \
    CMD ["python", "-I", "-c", "import http.client as h; c = h.HTTPConnection('127.0.0.1', 9469, timeout=5); c.request('GET', '/-/healthy'); raise SystemExit(c.getresponse().status != 200)"]
ENTRYPOINT ["quantwatch"]
CMD ["run", "--config", "/etc/quantwatch/quantwatch.yaml"]
