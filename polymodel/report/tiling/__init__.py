"""Reports on tilings: of operands, products, levels, estimates and the loop; text, tables and pictures."""
