"""Every model of the zoo through ``torch.hub``, for those who only want a layer:

    net = torch.hub.load("path/to/this/checkout", "durnn", source="local", input_size=2, hidden_size=128, length=100)

Needs torch and numpy, nothing else.
"""

import functools

import models

dependencies = ["torch", "numpy"]


def _entry(name):
    @functools.wraps(models.build)
    def build(*sizes, **options):
        return models.build(name, *sizes, **options)

    build.__doc__ = f"{models.registry.ZOO.entry(name).cls.__doc__}\n\nOptions: {models.options(name)}"
    return build


for _name in models.names():  # hub entries are Python names: "rnn-tanh" is also there as rnn_tanh
    globals()[_name] = globals()[_name.replace("-", "_")] = _entry(_name)
