"""Shared set-up: one thread, so that timings of neighbours and results do not depend on the machine's load."""

import torch

torch.set_num_threads(1)
