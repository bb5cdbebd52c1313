# Debian 12 with what Lockstep is built with. The steps are bazelw's: it installs the packages of
# third_party/packages.txt, and hands over to Bazel.
#
#   docker build --tag lockstep .
#   docker run --rm -it --volume "$PWD":/lockstep lockstep ./bazelw run //experiments:quickstart
FROM debian:12

# Without the sources, so that a change of them leaves this layer as it is. `version` ends bazelw after
# the packages are there.
COPY bazelw /setup/bazelw
COPY third_party/*.txt /setup/third_party/
COPY third_party/systems /setup/third_party/systems
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates git sudo \
    && /setup/bazelw --version && rm -rf /setup

# Whoever works in the container, as ranks under mpirun must not be root.
RUN useradd --create-home --shell /bin/bash builder \
    && echo 'builder ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/builder
USER builder
WORKDIR /lockstep
