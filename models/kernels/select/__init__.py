"""DuRNN's selection and long half."""
