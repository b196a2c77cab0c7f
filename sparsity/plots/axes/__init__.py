"""What of a row can move along an axis, and how a quantity is drawn: for plots and panel.

controls          each parameter: its range, the stops of its slider, its place on an axis
quantity_axis     each quantity: its label, its ends, whether its axis is logarithmic
row_choices       the rows on offer: one for each step, and those that a panel was opened with
"""
