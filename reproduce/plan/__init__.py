"""What a table needs: recipes, the paper's numbers and claims, and the runs that follow from them."""
