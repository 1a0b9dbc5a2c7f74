"""What tests of moves that learn from past states share."""

import numpy as np
from reference.arm import BLOCKS, PartialPosterior, Phi, disagreements
from reference.enumerate import canonical_labels, enumerate_partitions
from reference.simulate import PRIOR_CASES

# Which blocks move jointly; "srm": none, and no past states.
VARIANTS = (*BLOCKS, "srm")


def past(*states, n_chains=1):
    """The adaptation of a kernel whose chains have these past states, as many each.

    Parameters
    ----------
    *states : sequence of int, or str of digits
        Labels: those of the first chain, then of the next.
    n_chains : int

    Returns
    -------
    adaptation : dict
    """
    labels = canonical_labels([[int(label) for label in state] for state in states])
    labels = labels.reshape(n_chains, -1, labels.shape[-1]).astype(np.uint8)
    return {"labels": labels, "iterations": np.arange(labels.shape[1]), "frozen": True}


def all_past(n_samples):
    """The same with every partition."""
    return past(*enumerate_partitions(n_samples))


def kernel_with(sampler, adaptation):
    """A kernel that has learnt this."""
    kernel = sampler.kernel()
    kernel.set_adaptation(adaptation)
    return kernel


def draw_phi(n_samples, rng, variant, n_labels=None):
    """A phi as a move might draw it, and the `blocks` that it is for.

    Parameters
    ----------
    n_samples : int
    rng : numpy.random.Generator
    variant : str
        One of VARIANTS.
    n_labels : int, optional
        Most clusters of the past states; default: any of the partitions, alike.
    """
    order = tuple(rng.permutation(n_samples).tolist())
    if variant == "srm":
        rows = rng.permutation(n_samples)[:2].tolist()
        return Phi(*rows, None, None, order), BLOCKS[rng.integers(3)]
    pairs = []
    while not pairs:
        if n_labels is None:
            partitions = enumerate_partitions(n_samples)
            za, zb = partitions[rng.choice(len(partitions), 2)]
        else:
            za, zb = rng.integers(n_labels, size=(2, n_samples))
        pairs = disagreements(za, zb)
    rows = rng.permutation(pairs[rng.integers(len(pairs))]).tolist()
    za, zb = (tuple(row) for row in canonical_labels([za, zb]).tolist())
    return Phi(*rows, za, zb, order), variant


def partial_posterior(name, case, prior_case, **changes):
    """The reference of a case's rows.

    Parameters
    ----------
    name : str
        Of the likelihood.
    case : Case
        From `support.cases`.
    prior_case : str
        One of PRIOR_CASES.
    **changes
        Of the prior's parameters.
    """
    prior, params = PRIOR_CASES[prior_case]
    name = name.removesuffix("_complete")
    return PartialPosterior(case.X, name, case.params, prior, {**params, **changes})
