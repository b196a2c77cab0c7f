"""Do the instruments agree? Cells, tests and the reference grid."""
