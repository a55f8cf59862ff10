"""Fitting the transformer to a hand-made rule, as a rule by itself or as a start."""
