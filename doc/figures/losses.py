# SPDX-License-Identifier: BSD-3-Clause
"""The picture of losses on the page about many columns.

python doc/figures/losses.py doc/images/losses.png
"""

import sys

from sklearn.datasets import load_digits

from skdpm import DPMixture
from skdpm.plotting import ExpectedLossDisplay

X, _ = load_digits(return_X_y=True)
model = DPMixture(random_state=0).fit(X)
display = ExpectedLossDisplay.from_estimator(model)
if __name__ == "__main__":
    display.figure_.savefig(sys.argv[1], dpi=110)
