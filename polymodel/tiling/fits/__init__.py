"""What fits: entries, words, bits of a format; and what fits nowhere."""
