# SPDX-License-Identifier: BSD-3-Clause
"""How chains of `LFRM` agree on a network with many features, and how well they predict links.

    python benchmarks/papers/pgfa/authors.py --data FOLDER --splits 0,1,2
    python benchmarks/papers/pgfa/authors.py --data FOLDER --splits 0 --draws 2000

FOLDER holds nips234.npz, the adjacency matrix of 234 authors under "A". A tenth of the pairs is
held out: those that `numpy.random.default_rng(split).choice` takes. A line for each length gives
R-hat over the first draws of that number: of the log joint, of the number of features, of the log
likelihood of observed pairs given a draw's features and weights, and of the log likelihood of
held-out pairs; their autocorrelation times in iterations; the AUC of the mean of all draws, and
the lowest and highest AUC of the mean of one chain. `--sampler filter` is the discrete particle
filter. `--init` is where chains start, as in `FeatureAllocation`.
"""

import argparse
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score

from skdpm import FeatureAllocation
from skdpm.diagnostics import split_rhat
from skdpm.features.samplers import DiscreteParticleFilter, ElementGibbs

sys.path.append(str(Path(__file__).parents[1] / "arm"))
from chains import autocorrelation_time

SMALLEST = np.finfo(float).tiny
SAMPLERS = {"element": ElementGibbs(), "filter": DiscreteParticleFilter()}


def held_out(A, split):
    """Which pairs i < j are held out, as a matrix."""
    i, j = np.triu_indices(len(A), 1)
    taken = np.random.default_rng(split).choice(len(i), len(i) // 10, replace=False)
    hidden = np.zeros(A.shape, dtype=bool)
    hidden[i[taken], j[taken]] = True
    return hidden


def quantities(model, A, hidden):
    """Quantities of draws by name, (n_chains, n_draws), and probabilities of held-out links."""
    shape = model.log_joint_samples_.shape
    observed = np.triu(~hidden, 1)
    seen, found = np.empty(shape), np.empty((*shape, hidden.sum()))
    bias, weights = model.hyperparameter_samples_["bias"], model.draws_["weights"]
    for c, s in np.ndindex(shape):
        Z = model.draws_["allocations"][c][s].astype(float)
        logits = bias[c, s] + Z @ weights[c][s] @ Z.T
        signed = np.where(A > 0, logits, -logits)
        seen[c, s] = -np.logaddexp(0.0, -signed[observed]).sum()
        found[c, s] = 1.0 / (1.0 + np.exp(-logits[hidden]))
    linked = A[hidden] > 0
    # A pair whose probability is 0 in double precision counts as the least probability above 0.
    unseen = np.log(np.maximum(np.where(linked, found, 1.0 - found), SMALLEST)).sum(axis=2)
    return {
        "log joint": model.log_joint_samples_,
        "features": model.n_components_samples_,
        "observed": seen,
        "held out": unseen,
    }, found


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", required=True, help="folder of nips234.npz")
    parser.add_argument("--splits", default="0,1,2")
    parser.add_argument("--draws", type=int, default=250)
    parser.add_argument("--warmup", type=int, default=250)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--sampler", choices=SAMPLERS, default="element")
    parser.add_argument("--init", choices=("auto", "prior", "empty"), default="auto")
    parser.add_argument("--out", help="folder for the traces (npz)")
    args = parser.parse_args()
    with np.load(Path(args.data) / "nips234.npz") as arrays:
        A = arrays["A"].astype(float)
    for split in map(int, args.splits.split(",")):
        hidden = held_out(A, split)
        model = FeatureAllocation(
            likelihood="lfrm",
            sampler=SAMPLERS[args.sampler],
            init=args.init,
            n_chains=args.chains,
            n_warmup=args.warmup,
            n_draws=args.draws,
            n_jobs=1,
            random_state=split,
        )
        began = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the table says it
            model.fit(np.where(hidden | hidden.T, np.nan, A))
        seconds = time.process_time() - began
        traces, found = quantities(model, A, hidden)
        if args.out:
            name = f"authors_{args.sampler}_{args.init}_{split}_{args.draws}.npz"
            np.savez_compressed(Path(args.out) / name, **traces)
        features = traces["features"].mean(axis=1)
        print(
            f"split {split}, {args.sampler}: {seconds:.0f} s of the processor; means of chains: "
            f"features {features.round(1)}, log joint {traces['log joint'].mean(axis=1).round()}, "
            f"held-out log likelihood {traces['held out'].mean(axis=1).round()}",
            flush=True,
        )
        linked = A[hidden] > 0
        length = args.draws
        while length >= min(args.draws, 250):
            r_hats = [f"{name} {split_rhat(x[:, :length]):.2f}" for name, x in traces.items()]
            taus = [autocorrelation_time(x[:, :length]).mean() for x in traces.values()]
            of_chains = found[:, :length].mean(axis=1)
            aucs = [roc_auc_score(linked, p) for p in of_chains]
            print(
                f"  {length} draws: R-hat of {', '.join(r_hats)}; autocorrelation times "
                f"{', '.join(f'{tau:.0f}' for tau in taus)}; AUC "
                f"{roc_auc_score(linked, of_chains.mean(axis=0)):.3f}, of one chain "
                f"{min(aucs):.3f} to {max(aucs):.3f}",
                flush=True,
            )
            length //= 2


if __name__ == "__main__":
    main()
