"""What of a row can move along an axis, and how a quantity is drawn: for plots and panel."""
