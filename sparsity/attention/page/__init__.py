"""The report on a measurement: `job` measures and writes files, `page` lays out the HTML."""
