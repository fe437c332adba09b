"""What the papers claim, judged by facts: rules are data, and every ratio of times is a row that `facts` makes."""
