# syntax=docker/dockerfile:1

# One static binary in an empty image.
#
#   docker build -t plimsoll .
#   docker run --rm -p 127.0.0.1:8787:8787 -v plimsoll:/var/lib/plimsoll plimsoll serve --listen 0.0.0.0:8787
#
# The shipped configuration listens on loopback, which inside a container nobody else can reach. So the
# address has to be said: by `--listen`, as above, or in a file of one's own with `address = "0.0.0.0:8787"`
# in `[listen]`, mounted over /etc/plimsoll/gateway.toml. Publish the port on 127.0.0.1 only, as above:
# whoever reaches it can send requests.
#
# With `recall = "path"` a model is told the path of a file. The agent has to see that path too: mount one
# directory at the same place in both, name it in `state.dir`, or set `recall = "http"`.

FROM rust:1.95-alpine AS build
# A C compiler for SQLite, zstd, ring and jemalloc. Alpine's target is musl: the binary is static.
RUN apk add --no-cache build-base ca-certificates
WORKDIR /build
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/build/target \
    cargo build --release --locked --bin plimsoll && cp target/release/plimsoll /plimsoll
RUN mkdir -p /state/plimsoll && chmod 0700 /state/plimsoll

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build --chown=65532:65532 /state /var/lib
COPY --from=build /plimsoll /usr/bin/plimsoll
COPY gateway.toml /etc/plimsoll/gateway.toml

# A number, so that Kubernetes can see that it is not root.
USER 65532:65532
# State goes to $XDG_STATE_HOME/plimsoll unless `state.dir` says otherwise.
ENV XDG_STATE_HOME=/var/lib
VOLUME ["/var/lib/plimsoll"]
EXPOSE 8787

# No HEALTHCHECK: there is no shell or client in the image. Orchestrators ask `/health` of `listen.admin`, by any name.
ENTRYPOINT ["/usr/bin/plimsoll"]
CMD ["serve", "--config", "/etc/plimsoll/gateway.toml"]
