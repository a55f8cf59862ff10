"""Competition rules: what a rule is, those made by hand, the learned ones, and all of them by name."""
