"""Getting work: the claim loop, its pacing, the slots, and the renewal of locks."""
