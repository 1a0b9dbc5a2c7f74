"""Building blocks of the kernels; they know no model."""
