"""Kernels made of other kernels' plans: the whole networks of Sputnik's paper, and the choice that measures nothing."""
