"""What stays on disk: the ledger, the messages that were sent, sealed keys, witnesses."""
