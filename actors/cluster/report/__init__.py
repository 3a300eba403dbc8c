"""What a run achieved, read from its ledger and its logs."""
