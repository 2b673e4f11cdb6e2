"""What stays on disk: rows of the ledger, messages and states, their seals and digests, the witness, exports."""
