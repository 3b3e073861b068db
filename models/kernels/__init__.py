"""Recurrences of the zoo behind one dispatcher."""

from models.kernels.dispatch import gru_scan, indrnn_scan, lstm_scan, rnn_scan, select_scan

__all__ = ["gru_scan", "indrnn_scan", "lstm_scan", "rnn_scan", "select_scan"]
