"""`optimize` and `AskTell`: searches for people with a function, and all that they need."""
