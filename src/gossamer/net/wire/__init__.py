"""What goes over the wire: frames, transport, certificates and addresses."""
