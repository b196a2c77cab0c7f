"""The report on a measurement: data, pictures and a page."""
