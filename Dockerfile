# syntax=docker/dockerfile:1
# One image per part: docker build --build-arg PART=controlplane|dataplane|host -t warmroute-<part> .
# Each holds only its part's locked dependencies, checked by hash; nothing is compiled, and no build tool is left.

ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS build
ARG PART=dataplane
WORKDIR /src
RUN python -m venv /opt/warmroute
ENV PATH=/opt/warmroute/bin:$PATH
COPY requirements/build.lock requirements/${PART}.lock requirements/
RUN pip install --no-cache-dir --disable-pip-version-check --only-binary :all: --require-hashes \
    -r requirements/build.lock -r requirements/${PART}.lock
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY access access
COPY contract contract
COPY controlplane controlplane
COPY dataplane dataplane
COPY migrations migrations
COPY simulator simulator
COPY warmroute warmroute
RUN pip install --no-cache-dir --disable-pip-version-check --no-deps --no-build-isolation . \
    && pip uninstall --yes --quiet setuptools pip

FROM python:${PYTHON}-slim
RUN useradd --system --uid 10001 --no-create-home --home-dir /var/lib/warmroute warmroute \
    && install -d -o warmroute -g warmroute /var/lib/warmroute
COPY --from=build /opt/warmroute /opt/warmroute
COPY LICENSE NOTICE /usr/share/doc/warmroute/
ENV PATH=/opt/warmroute/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
# Where /health/ready (a host: /ping) is. 7080 is the data plane's port, 7070 the control plane's.
ENV HEALTH_URL=http://127.0.0.1:7080/health/ready
USER 10001
WORKDIR /var/lib/warmroute
# The data plane's last routing table; without a volume it lives as long as the container.
VOLUME /var/lib/warmroute
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(os.environ['HEALTH_URL'], timeout=2)"]
ENTRYPOINT ["warmroute"]
CMD ["--help"]
