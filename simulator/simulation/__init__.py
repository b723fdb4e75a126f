"""The event loop: one replica, fleets with routers, clients, autoscaling and disaggregated pools."""
