# The command line and the dashboard, with the drivers of all stores; and the image to build your own on.
#
#     docker build -t cronsensus .
#     docker run --rm --read-only --tmpfs /tmp -e CRONSENSUS_URL cronsensus doctor
#     docker run --rm --init --read-only --tmpfs /tmp -e CRONSENSUS_URL -e CRONSENSUS_DASHBOARD_TOKEN \
#         -p 127.0.0.1:8080:8080 cronsensus dashboard --host 0.0.0.0
#
# Your jobs are code of yours: an image of its own begins FROM this one, and copies them to /app:
#
#     FROM cronsensus
#     COPY shop.py /app/
#     CMD ["run", "shop:scheduler"]
#
# This file was linted (hadolint) and is held by tests/test_deploy.py; it was not built where it was written.

FROM python:3.12-slim AS build
WORKDIR /source
RUN python -m venv /venv
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN /venv/bin/pip install --no-cache-dir '.[postgres,mysql,redis,dashboard,metrics]'

FROM python:3.12-slim
# No shell, no home: who breaks in finds nothing to write to. A number, so that Kubernetes can check runAsNonRoot.
RUN useradd --uid 10001 --no-create-home --home-dir /app --shell /usr/sbin/nologin cronsensus
COPY --from=build /venv /venv
# Nothing is written beside the code, and what a job prints is seen at once.
ENV PATH=/venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /app
USER 10001
EXPOSE 8080 9464
# As a list: no shell stands between SIGTERM and the node, which drains.
ENTRYPOINT ["cronsensus"]
CMD ["--help"]
