"""SPE data into columns, sums and samples, by means of `arm_spe`."""
