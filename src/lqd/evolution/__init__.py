"""The genetic algorithm around a rule: the loop, variation, the passive archive, measures, the driver."""
