"""What a device needs to run one variant of a kernel: plain data, and facts of the architectures it is made for."""
