"""Tensaurus (HPCA 2020): what its four kernels cost on sparse and dense data. Import from the submodules."""
