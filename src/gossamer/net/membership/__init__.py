"""Who takes part in a network, under which terms and with which keys: three documents that sites send each other."""
