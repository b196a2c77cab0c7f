"""A campaign against the quadrature: many kernels, an independent reference, and a runner."""
