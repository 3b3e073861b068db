"""Shared set-up: one thread, so that timings of neighbours and results do not depend on the machine's load."""

import os

# Some virtual machines announce AMX and cannot do it: there, torch's products in bfloat16 end the process.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")

import torch

torch.set_num_threads(1)
