"""Operations that SPE sampled."""
