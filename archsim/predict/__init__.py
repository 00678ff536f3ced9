"""A model on a device: plan, memory and both phases put together, with the assumptions behind them."""
