"""Claims of papers, judged by computation."""
