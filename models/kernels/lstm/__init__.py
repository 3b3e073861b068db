"""The LSTM."""
