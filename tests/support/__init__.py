"""Helpers of the tests: cases, short chains, and the one place where p-values are judged."""
