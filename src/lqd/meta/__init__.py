"""Discovering rules: training, validation, states, logs."""
