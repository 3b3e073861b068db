"""The LSTM with batch normalisation inside."""
