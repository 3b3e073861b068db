"""Generated data for a machine that cannot get the real: drawn digits for MNIST, sentences for the Penn Treebank."""
