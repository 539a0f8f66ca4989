FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends etcd-server patroni postgresql-15 python3-etcd \
    && rm -rf /var/lib/apt/lists/* /var/lib/postgresql/15 \
    && mkdir -p /var/lib/etcd && chown postgres /var/lib/etcd
COPY --chmod=755 make-database /usr/local/bin/make-database
USER postgres
