"""Images in published layouts: where they lie, under which conditions, how they are decoded and encoded."""
