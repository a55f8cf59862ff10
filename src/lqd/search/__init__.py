"""`optimize` and `AskTell`: the searches, and everything they need."""
