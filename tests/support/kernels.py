"""From likelihood objects to kernels."""


def bind(likelihood, data, n_max):
    """The kernel of a resolved likelihood over encoded rows, for clusters of up to n_max items."""
    return likelihood.bind(data, likelihood.tables(data, n_max))
