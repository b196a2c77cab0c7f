"""The report on a measurement: its data, its figures and a page."""
