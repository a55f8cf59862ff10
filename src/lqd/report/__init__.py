"""Pictures and pages of results. They never compute results."""
