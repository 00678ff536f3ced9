"""What devices cost: prices with their dates, and dollars per million tokens of what the devices do."""
