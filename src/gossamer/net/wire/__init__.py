"""What moves between nodes, and who may: frames, the transport, addresses, certificates."""
