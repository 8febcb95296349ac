"""Tables, figures and the page: they read `condvne.data.results.Scores` and never recompute a score."""
