"""The transformer as a rule: the network of each feature recipe, and the fastest way to compute it here."""
