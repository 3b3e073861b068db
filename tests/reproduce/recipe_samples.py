"""A small recipe for the tests of planning."""

MINIMAL = """
[cells]
a = { label = "A", task = "adding" }
[rows]
r = { label = "R" }
[[settings]]
source = "ours: because it is small"
model = { name = "durnn", hidden_size = 4, num_layers = 1 }
optimiser = { name = "adam", lr = 1e-3 }
training = { updates = 4, batch_size = 2 }
evaluation = { every = 2, valid_samples = 4, test_samples = 4 }
data = { held_out = 4 }
"""
