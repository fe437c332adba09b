"""Published kernels that papers of this suite compare themselves with."""
