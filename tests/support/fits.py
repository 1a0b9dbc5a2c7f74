"""When two fits are the same."""

import numpy as np

DRAWS = ("label_samples_", "log_joint_samples_", "concentration_samples_", "n_components_samples_")


def assert_same_fit(one, other, X=None):
    """Bits of all that `fit` leaves behind.

    Parameters
    ----------
    one, other : fitted estimators
        Each may have labels in a dask array.
    X : ndarray of shape (m, n_features), optional
        Rows on which their scores and probabilities are compared too.
    """
    for name in (*DRAWS, "labels_", "weights_"):
        assert hasattr(one, name) == hasattr(other, name), name
        if hasattr(one, name):
            pair = [np.asarray(getattr(fit, name)) for fit in (one, other)]
            np.testing.assert_array_equal(*pair, err_msg=name)
            assert pair[0].dtype == pair[1].dtype, name
    assert one.n_iter_ == other.n_iter_
    assert repr(one.diagnostics_) == repr(other.diagnostics_)  # NaN as well
    assert one.cluster_params_.keys() == other.cluster_params_.keys()
    for name, values in one.cluster_params_.items():
        np.testing.assert_array_equal(values, other.cluster_params_[name], err_msg=name)
    if X is not None:
        for method in ("score_samples", "predict_proba"):
            pair = [getattr(fit, method)(X) for fit in (one, other)]
            np.testing.assert_array_equal(*pair, err_msg=method)
