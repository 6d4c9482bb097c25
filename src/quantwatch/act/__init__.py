"""Takes nodes out of traffic and back: gateway drivers, and carrying out one order."""
