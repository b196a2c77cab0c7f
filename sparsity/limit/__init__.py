"""The limit of long rows: closed forms, and quadrature of the definition."""
