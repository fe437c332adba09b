"""What is computed: problems, their tables, operands, float64 references and the check."""
