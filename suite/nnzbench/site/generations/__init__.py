"""GPU generations side by side."""
