"""Tests that mpirun starts."""

def mpi_test(name, binary, ranks, args = [], data = [], **kwargs):
    """Passes if all processes of `mpirun -n <ranks> <binary> <args>` end with 0."""
    native.sh_test(
        name = name,
        srcs = ["//build_defs:mpi_test.sh"],
        args = [str(ranks), "$(rootpath %s)" % binary] + args,
        data = [binary] + data,
        **kwargs
    )
