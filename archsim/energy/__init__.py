"""What devices draw and emit: watts from how busy their units are, joules per token, grams of CO2."""
