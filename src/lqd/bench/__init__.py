"""The paper's experiments and our own claims: what to run, running it, and what follows."""
