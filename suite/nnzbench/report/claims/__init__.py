"""What a claim of a paper is judged by: rules, sides and the numbers that they make of records."""
